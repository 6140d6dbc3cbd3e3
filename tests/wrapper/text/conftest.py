"""The text model, made once a process, and workspaces of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from testkit.modules import load

from edgeserve.types.artifact import Artifact


@pytest.fixture(scope="session")
def text_module() -> ModuleType:
    """The text model; loaded once, since PyTorch takes its time."""
    path = Path(__file__).with_name("textmodel.py")
    return load(path, "wrapper_textmodel")


@pytest.fixture
def text(tmp_path: Path, text_module: ModuleType) -> Any:
    """Makes workspaces of the text model."""
    folder = tmp_path / "texts"
    folder.mkdir()
    return text_module.TextMake(folder)


@pytest.fixture(scope="session")
def converted(
    tmp_path_factory: pytest.TempPathFactory, text_module: ModuleType
) -> tuple[Path, Artifact]:
    """The text model in TFLite, with buckets of 16 and 32 tokens: folder and artifact."""
    out = tmp_path_factory.mktemp("converted") / "out"
    artifact: Artifact = text_module.convert_to_tflite(out)
    folder = out.parent / "files"
    folder.mkdir()
    shutil.copy(out / artifact.entry, folder)
    return folder, artifact
