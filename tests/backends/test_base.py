"""Versions of converters: too old ones are named with the line that updates them."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from edgeserve import backends
from edgeserve.backends.versions import OLDEST, too_old
from edgeserve.errors import BackendError

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions to be found in place of those that are installed."""
    versions: dict[str, str] = {}
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda n: versions.get(n) or real(n))
    return versions


def test_oldest_versions_are_those_of_the_extras() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = {}
    for line in (*extras["convert"], *extras["coreml"]):
        name, version = re.split(r">=", line.partition(",")[0])
        wanted[name] = version
    assert wanted == OLDEST


def test_what_is_installed_here_is_new_enough() -> None:
    assert too_old(*OLDEST) is None


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("2.12.1", True),
        ("1.99", True),
        ("2.13", False),
        ("2.13.0+cpu", False),
        ("2.13.1", False),
        ("2.14.0.dev20260101+cpu", False),
        ("3.0", False),
        ("2.9.0", True),
    ],
)
def test_versions_are_compared_as_numbers(
    installed: dict[str, str], version: str, old: bool
) -> None:
    installed["torch"] = version
    said = too_old("torch", "onnx")
    assert bool(said) == old
    if said:
        assert said.startswith("pip install -U 'torch>=2.13' ")
        assert version in said


def test_what_is_missing_is_not_old() -> None:
    assert too_old("torch") is None
    with pytest.raises(KeyError):
        too_old("numpy")  # no converter: nothing is known of it


@pytest.mark.parametrize(
    ("format", "package"),
    [
        ("onnx", "onnx"),
        ("onnx", "onnx-ir"),
        ("onnx", "onnxscript"),
        ("onnx", "torch"),
        ("tflite", "litert-torch"),
        ("tflite", "ai-edge-quantizer"),
        ("coreml", "coremltools"),
    ],
)
def test_a_format_whose_converter_is_too_old_is_refused(
    installed: dict[str, str], format: str, package: str, tmp_path: Path
) -> None:
    installed[package] = "0.1"
    backend = backends.get(format)
    assert package in (backend.missing_tools() or "")
    with pytest.raises(BackendError) as error:
        backend.inspect(None, tmp_path)  # type: ignore[arg-type]
    assert error.value.code == "EDGE-BACKEND-004"
    assert error.value.hint.startswith(f"pip install -U '{package}>={OLDEST[package]}'")
    assert backend.missing() is None  # what is made already still runs
