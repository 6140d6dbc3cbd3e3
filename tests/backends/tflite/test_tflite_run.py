"""Running a TFLite file: inner tensors, what is light, what is damaged, and the GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edgeserve import backends
from edgeserve.backends.session import LoadOptions
from edgeserve.backends.tflite.run import open_session
from edgeserve.errors import BackendError
from edgeserve.files import describe
from edgeserve.installation import install_command
from edgeserve.types.artifact import Recipe
from edgeserve.types.base import encode

#: The browser brings a Vulkan driver that runs on any CPU.
CHROMIUM = Path("/usr/lib/chromium")


def test_a_tap_is_the_tensor_of_its_source_op(digits: Any) -> None:
    file = digits.file
    graph = backends.get("tflite").inspect(file.artifact, file.root)
    tap = next(
        op.outputs[0] for op in graph.ops if op.type == "DEPTHWISE_CONV_2D" and op.module == "deep"
    )
    image = digits.images[:1]
    with backends.get("tflite").load(file.artifact, file.root, taps=[tap]) as session:
        got = session.run({"image": image})[tap]
    with torch.no_grad():
        right = torch.relu(file.net.module.deep(file.net.module.stem(torch.from_numpy(image))))
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), right.numpy(), atol=1e-5)


def test_a_tap_is_there_at_every_length(text_file: Any) -> None:
    graph = backends.get("tflite").inspect(text_file.artifact, text_file.root)
    tap = next(op.outputs[0] for op in graph.ops if op.source == "embedding" and len(op.outputs))
    table = text_file.net.module.words.weight.detach().numpy()
    taps = [name for op in graph.ops for name in op.outputs if name.startswith("words/embedding")]
    assert tap in taps
    for length in (16, 24):
        ids = np.arange(length, dtype=np.int32)[None]
        feed = {"ids": ids, "mask": np.ones_like(ids)}
        with backends.get("tflite").load(text_file.artifact, text_file.root, taps=taps) as session:
            got = session.run(feed)
        rows = [got[name].reshape(-1, 16) for name in taps if got[name].size == length * 16]
        np.testing.assert_array_equal(rows[0], table[:length])


def test_running_needs_the_runtime_alone(digits: Any, tmp_path: Path) -> None:
    """As in an app: with the packages of [tflite] only, and without what makes files."""
    (tmp_path / "artifact.json").write_bytes(encode(digits.file.artifact))
    np.save(tmp_path / "image.npy", digits.images[:1])
    code = """
import sys
for name in ("torch", "litert_torch", "ai_edge_quantizer", "flatbuffers", "jax", "onnx"):
    sys.modules[name] = None
from pathlib import Path
import numpy as np
from edgeserve import backends
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode
folder, root = map(Path, sys.argv[1:])
artifact = decode((folder / "artifact.json").read_bytes(), Artifact)
with backends.get("tflite").load(artifact, root) as session:
    np.save(folder / "logits.npy", session.run({"image": np.load(folder / "image.npy")})["logits"])
"""
    subprocess.run(
        [sys.executable, "-P", "-c", code, tmp_path, digits.file.root], check=True, timeout=120
    )
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), digits.logits[:1], atol=1e-4)


def damaged(made: Any, folder: Path, data: bytes) -> Any:
    """An artifact whose file is wrong and whose hash is right."""
    (folder / "model.tflite").write_bytes(data)
    return msgspec.structs.replace(made.artifact, files=(describe(folder, "model.tflite"),))


@pytest.mark.parametrize("kind", ["empty", "short", "other", "cut", "noise"])
def test_a_file_that_is_no_model_is_refused(kind: str, digits: Any, tmp_path: Path) -> None:
    whole = (digits.file.root / "model.tflite").read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, len(whole), np.uint8).tobytes()
    data = {
        "empty": b"",
        "short": whole[:8],
        "other": whole[:4] + b"TFL2" + whole[8:],
        "cut": whole[: len(whole) // 2],
        "noise": whole[:8] + noise[8:],
    }[kind]
    artifact = damaged(digits.file, tmp_path, data)
    for attempt in (backends.get("tflite").load, backends.get("tflite").inspect):
        with pytest.raises(BackendError) as error:
            attempt(artifact, tmp_path)
        assert error.value.code == "EDGE-BACKEND-012"


def test_signatures_that_the_artifact_does_not_name_are_refused(
    text_file: Any, digits: Any, tmp_path: Path
) -> None:
    data = (text_file.root / "model.tflite").read_bytes()
    with pytest.raises(BackendError) as error:
        backends.get("tflite").load(damaged(digits.file, tmp_path, data), tmp_path)
    assert error.value.code == "EDGE-BACKEND-012"
    assert "len_16" in error.value.message


def test_a_gpu_that_is_not_there_is_refused(digits: Any) -> None:
    """The engine itself is asked, without a driver: nothing runs in the GPU's place."""
    with pytest.raises(BackendError) as error:
        open_session(digits.file.artifact, digits.file.root, LoadOptions("gpu"))
    assert error.value.code == "EDGE-BACKEND-005"


def test_a_gpu_shows_no_inner_tensors(digits: Any) -> None:
    with pytest.raises(BackendError) as error:
        open_session(digits.file.artifact, digits.file.root, LoadOptions("gpu", taps=("x",)))
    assert error.value.code == "EDGE-BACKEND-005"


@pytest.mark.skipif(
    not (CHROMIUM / "libvk_swiftshader.so").exists(), reason="needs the browser's Vulkan driver"
)
def test_a_gpu_runs_the_whole_model(digits: Any, text_file: Any, tmp_path: Path) -> None:
    """Through Vulkan and WebGPU, on a driver in software: slow, and the real thing."""
    code = """
import sys
from pathlib import Path
import numpy as np
from edgeserve import backends
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode
artifact = decode(Path(sys.argv[1]).read_bytes(), Artifact)
assert backends.get("tflite").delegates() == ("gpu", "cpu")
with backends.get("tflite").load(artifact, Path(sys.argv[2]), delegate="gpu") as session:
    assert session.delegate == "gpu"
    images = np.load(sys.argv[3])
    np.save(sys.argv[3], [session.run({"image": image[None]})["logits"][0] for image in images])
"""
    (tmp_path / "artifact.json").write_bytes(encode(digits.file.artifact))
    np.save(tmp_path / "x.npy", digits.images[:3])
    driver = str(CHROMIUM / "vk_swiftshader_icd.json")
    path = f"{CHROMIUM}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            code,
            tmp_path / "artifact.json",
            digits.file.root,
            tmp_path / "x.npy",
        ],
        timeout=300,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": path,
            "VK_DRIVER_FILES": driver,
            "VK_ICD_FILENAMES": driver,
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), digits.logits[:3], atol=1e-3)


@pytest.mark.parametrize(
    ("gone", "line"),
    [
        ("ai_edge_litert", install_command("tflite")),
        ("litert_torch", install_command("convert")),
        ("ai_edge_quantizer", install_command("convert")),
    ],
)
def test_what_is_not_installed_is_named_with_the_line_that_installs_it(
    gone: str, line: str, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, find_spec = backends.get("tflite"), importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == gone else find_spec(name)
    )
    needs_it = {
        "ai_edge_litert": lambda: backend.load(digits.file.artifact, digits.file.root),
        "litert_torch": lambda: backend.export(
            digits.file.net.exported, digits.file.net.root, tmp_path
        ),
        "ai_edge_quantizer": lambda: backend.quantize(
            digits.file.artifact, digits.file.root, Recipe(precision="w8"), (), tmp_path
        ),
    }[gone]
    with pytest.raises(BackendError) as error:
        needs_it()
    assert error.value.code == "EDGE-BACKEND-004"
    assert error.value.hint == line
