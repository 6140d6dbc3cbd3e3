"""Workspaces made without edgeserve: by the generator of the bundle conformance cases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "spec" / "conformance" / "bundle"))

from bundlecases import content
from bundlecases.content import Json
from bundlecases.texts import text_files, text_manifest


@pytest.fixture
def write_workspace(
    tmp_path: Path, write_reports: Callable[[Path], None]
) -> Callable[[Json, dict[str, bytes]], Path]:
    """Lay out a workspace with the given manifest and files."""

    def write(manifest: Json, files: dict[str, bytes]) -> Path:
        folder = Path(content.write_workspace(tmp_path / "out", manifest, files))
        write_reports(folder)
        return folder

    return write


@pytest.fixture
def workspace(write_workspace: Callable[[Json, dict[str, bytes]], Path]) -> Path:
    """One ONNX artifact, one golden case, and what is private: a reference, samples, logs."""
    manifest = content.colour_manifest() | {"reference": "server:predict", "x": {"mine": 1}}
    return write_workspace(manifest, content.colour_files())


@pytest.fixture
def several(write_workspace: Callable[[Json, dict[str, bytes]], Path]) -> Path:
    """ONNX and Core ML artifacts, and a refused TFLite one."""
    manifest = content.folder_manifest()
    where = "EDGE-CHECK-001"
    manifest["refused"] = [
        {
            "format": f,
            "precision": "w8a8",
            "verdict": "fail",
            "code": where,
            "message": "does not load",
            "hint": "try fp32",
            "path": f"failed/{f}-w8a8",
        }
        for f in ("tflite", "coreml")
    ]
    return write_workspace(manifest, content.folder_files())


@pytest.fixture
def text(write_workspace: Callable[[Json, dict[str, bytes]], Path]) -> Path:
    """A text model whose processing names an asset, beside one that nothing names."""
    folder = write_workspace(text_manifest(), text_files())
    (folder / "assets" / "notes.txt").write_bytes(b"of the training, private")
    return folder
