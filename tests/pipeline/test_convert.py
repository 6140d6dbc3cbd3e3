"""convert: what it leaves on disk and on standard output, resuming, refusing, interrupting."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnxruntime
import psutil
import pytest

from edgeserve import backends
from edgeserve.errors import BackendError, UsageError
from edgeserve.pipeline.options import expand_all
from edgeserve.types.options import ConvertOptions

Run = Callable[..., Any]


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _runs(process: psutil.Process) -> bool:
    """Whether a process is still there; one that only waits to be reaped is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _left_over(folder: Path) -> list[Path]:
    return list(folder.rglob(".tmp-*"))


def test_json_fits_the_published_schema(converted: Any) -> None:
    schema = json.loads(Path("spec/schema/cli.schema.json").read_text())
    jsonschema.validate(converted.json, schema)
    (artifact,) = converted.json["artifacts"]
    assert artifact["verdict"] == "pass"
    assert artifact["entry"].startswith("artifacts/onnx-fp32/")
    assert [i["name"] for i in artifact["io"]["inputs"]] == ["image"]
    assert converted.json["refused"] == []
    assert converted.json["error"] is None


def test_the_artifact_computes_what_the_module_does(workspace: Path, project: Path) -> None:
    """PyTorch is the oracle: the eager module in a process of its own, on seeded tensors."""
    batch = np.random.default_rng(1).random((5, 3, 16, 16), np.float32)
    np.save(workspace / "in.npy", batch)
    code = (
        "import numpy, torch, toy, sys; m, _, _ = toy.build();"
        "x = torch.from_numpy(numpy.load(sys.argv[1] + '/in.npy'));"
        "numpy.save(sys.argv[1] + '/out.npy', m(x).detach().numpy())"
    )
    subprocess.run([sys.executable, "-c", code, str(workspace)], cwd=project, check=True)
    wanted = np.load(workspace / "out.npy")
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    session = onnxruntime.InferenceSession(str(workspace / manifest["artifacts"][0]["entry"]))
    got = session.run(None, {"image": batch})[0]
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_the_second_run_converts_nothing(workspace: Path, edgeserve: Run) -> None:
    before = _tree(workspace / "artifacts")
    done = edgeserve("convert", "toy:build", "-o", str(workspace), "--data", "photos")
    assert done.code == 0, done.err
    assert "not converted again" in done.err
    assert "same evidence as before" in done.err
    assert _tree(workspace / "artifacts") == before


def test_a_changed_artifact_is_converted_again(workspace: Path, edgeserve: Run) -> None:
    manifest = json.loads((workspace / "manifest.json").read_bytes())
    entry = workspace / manifest["artifacts"][0]["entry"]
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    done = edgeserve("convert", "toy:build", "-o", str(workspace), "--data", "photos")
    assert done.code == 0, done.err
    assert "not converted again" not in done.err
    session = onnxruntime.InferenceSession(str(entry))
    assert session.get_inputs()[0].name == "image"


def test_a_dry_run_touches_nothing(tmp_path: Path, edgeserve: Run) -> None:
    out = tmp_path / "dry"
    done = edgeserve("convert", "toy:build", "-o", str(out), "--dry-run")
    assert done.code == 0
    assert "convert   onnx-fp32" in done.out
    assert not out.exists()


def test_all_formats_and_precisions_that_can_be_made_here(tmp_path: Path, edgeserve: Run) -> None:
    every = ("convert", "toy:build", "-o", str(tmp_path / "dry"), "--to", "all", "--dry-run")
    done = edgeserve(*every, "--precision", "all", "--data", "photos")
    assert done.code == 0, done.err
    for format in backends.installed():
        for precision in format.precisions:
            assert f"convert   {format.format}-{precision} " in done.out
    done = edgeserve(*every, "--precision", "all")
    assert "convert   coreml-fp16 " in done.out
    assert "w8a8 ->" not in done.out
    assert "leave out w8a8: calibration needs samples: give --data" in done.out
    done = edgeserve(*every, "--precision", "w8a8", "--data", "photos")
    assert "convert   tflite-w8a8 " in done.out, "one of both may be all"


def test_all_leaves_out_a_format_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ConvertOptions(source="toy:build", out="out", to=("all",), precision=("fp32", "w8"))
    monkeypatch.setattr(type(backends.get("coreml")), "missing_tools", lambda self: "pip line")
    expanded, left = expand_all(options)
    assert expanded.to == ("onnx", "tflite")
    assert left == {"coreml": "not installed: pip line"}
    named = dataclasses.replace(options, to=("nope", "all"), precision=("w8a8", "all"))
    expanded, left = expand_all(dataclasses.replace(named, to=("coreml", "all")))
    assert expanded.to == ("coreml", "onnx", "tflite"), "a named format is refused later, not left"
    assert expanded.precision == ("w8a8", "fp32", "fp16", "w8", "w8a8"), "a named precision stays"
    assert set(left) == {"coreml"}
    with pytest.raises(UsageError) as unknown:
        expand_all(named)
    assert unknown.value.code == "EDGE-USAGE-001"
    for name in ("onnx", "tflite"):
        monkeypatch.setattr(type(backends.get(name)), "missing_tools", lambda self: "pip line")
    with pytest.raises(BackendError) as caught:
        expand_all(options)
    assert caught.value.code == "EDGE-BACKEND-004"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["toy:build", "--to", "tensorrt"], 2, "EDGE-USAGE-001"),
        (["toy:build", "--precision", "int3"], 2, "EDGE-USAGE-001"),
        (["toy:build", "--task", "telepathy"], 2, "EDGE-USAGE-001"),
        (["toy:build", "--require", "maybe"], 2, "EDGE-USAGE-001"),
        (["toy:build", "--profile", "reckless"], 3, "EDGE-PROFILE"),
        (["toy:build", "--precision", "w4"], 3, "EDGE-BACKEND-006"),
        (["toy:build", "--to", "litert", "--precision", "fp32,w8a16"], 3, "EDGE-BACKEND-006"),
        (["nowhere.pt2"], 3, "EDGE-CONVERT"),
        (["no_such_module:build"], 3, "EDGE-CONVERT"),
        (["toy:no_such_factory"], 3, "EDGE-CONVERT"),
        (["toy:build", "--preprocess", "nonsense"], 2, "EDGE-USAGE-002"),
        (["toy:build", "--data", "no-such-folder"], 3, "EDGE-DATA"),
    ],
)
def test_what_cannot_be_done_is_a_coded_error(
    words: list[str], code: int, said: str, tmp_path: Path, edgeserve: Run
) -> None:
    done = edgeserve("convert", *words, "-o", str(tmp_path / "out"), "--json")
    assert done.code == code, done.err
    assert done.json["error"]["code"].startswith(said)
    assert done.json["error"]["hint"]
    assert not _left_over(tmp_path)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--to", "tflight"], "tflite"),
        (["--to", "onxx"], "onnx"),
        (["--to", "core_ml"], "coreml"),
        (["--precision", "fp23"], "fp32"),
        (["--precision", "W8A8"], "w8a8"),
        (["--precision", "int8"], "w8a8"),
        (["--task", "image-clasification"], "image-classification"),
    ],
)
def test_a_misspelt_word_is_guessed(words: list[str], meant: str, edgeserve: Run) -> None:
    done = edgeserve("convert", "toy:build", "-o", "never", *words, "--json")
    assert done.code == 2
    assert f"did you mean {meant}?" in done.json["error"]["hint"]


def test_an_error_of_the_factory_names_the_users_line(tmp_path: Path, edgeserve: Run) -> None:
    done = edgeserve("convert", "toy:broken", "-o", str(tmp_path / "out"))
    assert done.code == 3
    assert "toy.py:" in done.err
    assert "the weights are gone" in done.err


def test_a_server_that_decides_otherwise_refuses_the_artifact(
    tmp_path: Path, edgeserve: Run
) -> None:
    out = tmp_path / "out"
    words = ["toy:build", "-o", str(out), "--data", "photos", "--reference", "toy:liar", "--json"]
    done = edgeserve("convert", *words)
    assert done.code == 1, done.err
    (refused,) = done.json["refused"]
    assert refused["verdict"] == "fail"
    assert refused["code"].startswith("EDGE-CHECK-")
    assert done.json["artifacts"] == []
    assert list((out / "failed" / "onnx-fp32").iterdir())
    assert not (out / "artifacts" / "onnx-fp32").exists()
    packaged = edgeserve("package", str(out), "-o", str(tmp_path / "m.edge"), "--json")
    assert packaged.code == 3
    assert packaged.json["error"]["code"].startswith("EDGE-PACKAGE-")
    assert not (tmp_path / "m.edge").exists()


def test_all_or_nothing_leaves_the_workspace_as_it_was(workspace: Path, edgeserve: Run) -> None:
    before = (workspace / "manifest.json").read_bytes()
    words = ["-o", str(workspace), "--data", "photos", "--reference", "toy:liar"]
    done = edgeserve("convert", "toy:build", *words, "--all-or-nothing", "--json")
    assert done.code == 1, done.err
    assert (workspace / "manifest.json").read_bytes() == before
    assert (workspace / "artifacts" / "onnx-fp32").exists()


def test_require_is_an_exit_code(tmp_path: Path, edgeserve: Run) -> None:
    """Without any data an fp32 artifact passes at tensor level, so `pass` can be required."""
    out = str(tmp_path / "out")
    done = edgeserve("convert", "toy:tensors", "-o", out, "--require", "pass", "--json")
    assert done.code == 0, done.err + done.out
    assert done.json["artifacts"][0]["verdict"] == "pass"


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_running_and_nothing_half_written(
    kind: signal.Signals, tmp_path: Path, project: Path, edgeserve: Run
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-P", "-m", "edgeserve", "convert", "toy:build", "-o", str(out)]
    with subprocess.Popen(command, cwd=project, start_new_session=True) as process:
        while not (out / "logs" / "export" / "job.json").exists():
            assert process.poll() is None
        workers = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, kind)
        assert process.wait(timeout=30) == 130
    deadline = time.monotonic() + 20  # killed, but a busy system may still be taking it down
    while any(_runs(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived the command"
        time.sleep(0.05)
    assert not (out / "manifest.json").exists()
    again = edgeserve("convert", "toy:build", "-o", str(out), "--data", "photos")
    assert again.code == 0, again.err
    assert not _left_over(out)


def test_a_locked_workspace_says_who_holds_it(workspace: Path, edgeserve: Run) -> None:
    from edgeserve.bundle import Workspace

    with Workspace(workspace).lock():
        done = edgeserve("measure", str(workspace), "--json")
    assert done.code == 3
    assert done.json["error"]["code"].startswith("EDGE-BUNDLE-")
    assert str(os.getpid()) in done.json["error"]["message"]


def test_the_packaged_bundle_is_a_plain_zip(
    workspace: Path, edgeserve: Run, tmp_path: Path
) -> None:
    """Python's own zipfile is the oracle of the container."""
    bundle = tmp_path / "toy.edge"
    done = edgeserve("package", str(workspace), "-o", str(bundle), "--version", "7", "--json")
    assert done.code == 0, done.err
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
    assert names[0] == "manifest.json"
    assert manifest["version"] == 7
    assert manifest.get("reference") is None
    assert not [n for n in names if n.startswith(("samples", "source", "logs", "reports"))]


def test_a_reference_that_answers_nan_proves_nothing(tmp_path: Path, edgeserve: Run) -> None:
    done = edgeserve("convert", "toy:nan", "-o", str(tmp_path / "out"), "--json")
    assert done.code == 1, done.err
    assert done.json["artifacts"] == []
    assert done.json["refused"][0]["code"] == "EDGE-CHECK-014"
