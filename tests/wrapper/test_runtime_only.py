"""An app's environment: a runtime, Pillow, the base dependencies; nothing that converts."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_BANNED = (
    "coremltools",
    "jinja2",
    "litert_torch",
    "matplotlib",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "psutil",
    "ray",
    "rich",
    "torch",
    "transformers",
    "typer",
)
#: Base dependencies and the extra [onnx].
_RUNTIME = ("numpy", "msgspec", "filelock", "platformdirs", "onnxruntime", "pillow")

_PREDICT = """
import importlib.util, json, sys
from edgeserve import Wrapper
from edgeserve.types.base import encode

root, photo, banned = sys.argv[1], sys.argv[2], sys.argv[3].split()
with Wrapper(root) as tagger:
    answer = tagger.predict(photo)
    certificate = tagger.verify()
print(json.dumps({
    "answer": json.loads(encode(answer)),
    "verdict": certificate.verdict,
    "loaded": sorted(set(banned) & set(sys.modules)),
    "installed": [name for name in banned if importlib.util.find_spec(name)],
}))
"""


def predict(python: str, make: Any, tmp_path: Path) -> dict[str, Any]:
    """What an app says that runs on ``python`` in a process of its own."""
    photo = tmp_path / "photo.png"
    photo.write_bytes(make.png(make.pixels(3)))
    bundle = make.bundle(make.workspace())
    done = subprocess.run(
        [python, "-P", "-c", textwrap.dedent(_PREDICT), bundle, photo, " ".join(_BANNED)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def is_right(said: dict[str, Any], make: Any) -> bool:
    expected = make.oracle(make.pixels(3))
    assert said["answer"]["label"] == expected.label
    assert said["answer"]["score"] == pytest.approx(expected.score, abs=1e-5)
    assert said["answer"]["ran_on"]["proof"] == "golden"
    return bool(said["verdict"] == "pass")


def test_the_wrapper_loads_nothing_that_converts(make: Any, tmp_path: Path) -> None:
    said = predict(sys.executable, make, tmp_path)
    assert is_right(said, make)
    assert "torch" in said["installed"], "here they could have been loaded"
    assert said["loaded"] == []


def test_the_wrapper_works_where_only_the_runtime_is_installed(
    make: Any, app: Callable[..., str], tmp_path: Path
) -> None:
    said = predict(app(*_RUNTIME), make, tmp_path)
    assert is_right(said, make)
    assert said["installed"] == []
