"""The registry: built-ins by name and spelling, plugins through entry points, coded refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgeserve import backends
from edgeserve.backends.torch import TorchBackend
from edgeserve.errors import BackendError

PLUGIN = """
from edgeserve.backends.torch import TorchBackend

class Mine(TorchBackend):
    format = "mine"

    spellings = ("my-own", "ort")
    precisions = ("fp32", "nf4")
    delegate_aliases = {"processor": "cpu"}

class Onnx(TorchBackend):
    format = "onnx"

class Other(TorchBackend):
    format = "mine"

NOTHING = object
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that registers formats, one of them a built-in's name."""
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[edgeserve.backends]\n"
        "mine = edgeserve_mine:Mine\n"
        "onnx = edgeserve_mine:Onnx\n"
        "broken = edgeserve_mine:Missing\n"
        "gone = no_such_module:X\n"
        "wrong = edgeserve_mine:NOTHING\n"
        "other = edgeserve_mine:Other\n"
        "no-word = edgeserve_mine:Mine\n"
    )
    (tmp_path / "edgeserve_mine.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(backends, "_made", {})
    monkeypatch.delitem(sys.modules, "edgeserve_mine", raising=False)


def test_built_in_formats_are_listed_and_cannot_be_changed() -> None:
    assert {"coreml", "onnx", "tflite", "torch"} <= set(backends.formats())
    assert list(backends.formats()) == sorted(backends.formats())
    with pytest.raises(TypeError):
        backends.formats()["onnx"] = "x:Y"  # type: ignore[index]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("ONNX", "onnx"),
        (" ort ", "onnx"),
        ("onnxruntime", "onnx"),
        ("litert", "tflite"),
        ("ai-edge-torch", "tflite"),
        ("mlpackage", "coreml"),
    ],
)
def test_spellings_mean_one_backend(word: str, name: str) -> None:
    assert backends.get(word) is backends.get(name)


def test_a_backend_is_made_once_and_knows_its_format() -> None:
    for name in ("coreml", "onnx", "tflite", "torch"):
        assert backends.get(name).format == name
        assert backends.get(name) is backends.get(name)


@pytest.mark.parametrize("word", ["", "tensorflow", "onnx2", "../onnx"])
def test_an_unknown_format_names_the_known(word: str) -> None:
    with pytest.raises(BackendError) as error:
        backends.get(word)
    assert error.value.code == "EDGE-BACKEND-001"
    assert "coreml, onnx, tflite, torch" in error.value.message


@pytest.mark.usefixtures("plugin")
def test_a_plugin_adds_a_format_and_never_replaces_one() -> None:
    assert backends.get("mine").format == "mine"
    assert backends.formats()["onnx"].startswith("edgeserve.backends.onnx:")
    assert not isinstance(backends.get("onnx"), TorchBackend)


@pytest.mark.usefixtures("plugin")
def test_a_plugins_words_are_known_and_never_mean_a_built_in_format_less() -> None:
    assert backends.canonical(" My-Own") == "mine"
    assert backends.get("my-own") is backends.get("mine")
    assert backends.canonical("ort") == "onnx", "a built-in format's spelling stays its own"
    assert backends.canonical("nobody") == "nobody"
    assert backends.registered("mine")
    assert not backends.registered("my-own")
    assert backends.in_order(["mine", "tflite", "abc", "onnx"]) == ("onnx", "tflite", "abc", "mine")
    assert [b.format for b in backends.installed()] == ["onnx", "tflite", "coreml", "mine"]
    assert backends.precisions()[-1] == "nf4"
    assert "nf4" not in backends.precisions(["onnx"])
    assert (backends.title("mine"), backends.title("nobody")) == ("PyTorch", "nobody")
    assert backends.get("mine").delegate(" Processor ") == "cpu"
    assert backends.get("mine").delegate("gpu") == "gpu"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("name", ["broken", "gone", "wrong", "other", "no-word"])
def test_a_broken_plugin_hurts_only_its_own_format(name: str) -> None:
    with pytest.raises(BackendError) as error:
        backends.get(name)
    assert error.value.code == "EDGE-BACKEND-003"
    assert backends.get("onnx").format == "onnx"


def test_the_room_loads_no_engine() -> None:
    """Neither do the backends themselves, nor the contract, until something is done with them."""
    heavy = {
        "torch",
        "onnx",
        "onnx_ir",
        "onnxruntime",
        "onnxscript",
        "PIL",
        "ai_edge_litert",
        "ai_edge_quantizer",
        "coremltools",
        "flatbuffers",
        "litert_torch",
    }
    code = (
        "import sys\n"
        "from edgeserve import backends\n"
        "import edgeserve.backends.contract\n"
        "for name in ('coreml', 'onnx', 'tflite', 'torch'):\n"
        "    backends.get(name).missing(), backends.get(name).missing_tools()\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
