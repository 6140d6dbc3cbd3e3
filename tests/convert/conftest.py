"""A user's folder with modules of every kind in it, each fresh for its test."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.types.source import Exported

GOOD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, image):
        return self.head(torch.relu(self.conv(image)).mean((2, 3)))

def factory():
    return Net(), (torch.ones(1, 3, 8, 8),), {
        "dynamic_shapes": {"image": {0: ("batch", 1, 8)}}, "output_names": ["logits"],
    }
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Path]:
    """The user's folder; modules imported from it are forgotten afterwards."""
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "good.py").write_text(GOOD)
    before, path = set(sys.modules), list(sys.path)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def write(user: Path) -> Callable[[str, str], None]:
    """Write a module into the user's folder."""

    def write(name: str, text: str) -> None:
        (user / f"{name}.py").write_text(textwrap.dedent(text))

    return write


@pytest.fixture
def export(user: Path, tmp_path: Path) -> Callable[[str], Exported]:
    """Export a source of the user's folder, in this process, into ``tmp_path / "out"``."""

    def export(source: str) -> Exported:
        request = ExportRequest(source=parse_source(source, user), out=str(tmp_path / "out"))
        return export_source(request)

    return export
