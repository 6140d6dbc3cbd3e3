"""``edgeserve env create``: environments for tools that cannot live beside ours.

An environment is an ordinary venv below the user's data folder. Making it is the one command that
goes to a package index; what uses it afterwards does not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeserve.backends.onnx.optimum import (
    NAME,
    PINS,
    environment_folder,
    environment_python,
    ready_marker,
)
from edgeserve.errors import ConvertError
from edgeserve.files import write_atomic
from edgeserve.jobs import Progress
from edgeserve.options import check_choice
from edgeserve.pipeline.stage_context import QUIET, ProgressCallback, Ui
from edgeserve.types.base import encode

#: Environments by name, and the packages that each is made of.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {NAME: PINS}

_SAID = 400  # characters of pip's last words
_STEPS = ("Collecting", "Downloading", "Installing", "Requirement")


class ToolEnvironment(msgspec.Struct, frozen=True):
    """An environment as it stands.

    Attributes:
        name: Its name.
        folder: Where it lies.
        made: This call made it; False: it was there.
    """

    name: str
    folder: str
    made: bool

    def json(self) -> bytes:
        """The ``--json`` object."""
        fields = {"name": self.name, "folder": self.folder, "made": self.made}
        return encode({"schema": 1, **fields, "error": None})


def create(name: str, ui: Ui = QUIET, index: Sequence[str] = ()) -> ToolEnvironment:
    """Make an environment, or go on with one that an earlier call left half made.

    Args:
        name: One of `ENVIRONMENTS`.
        ui: Where pip's steps are shown.
        index: Further words for pip ("--index-url", ...).

    Raises:
        UsageError: there is none of that name.
        ConvertError: EDGE-CONVERT-081, pip could not do it.
    """
    from filelock import FileLock

    pins = ENVIRONMENTS[check_choice("NAME", name, tuple(ENVIRONMENTS))]
    folder = environment_folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if _whole(name):
            return ToolEnvironment(name, str(folder), made=False)
        with ui.stage(f"env {name}") as tell:
            _make(folder, pins, index, tell)
    return ToolEnvironment(name, str(folder), made=True)


def _whole(name: str) -> bool:
    try:
        environment_python(name)
    except ConvertError:
        return False
    return True


def _make(folder: Path, pins: Sequence[str], index: Sequence[str], tell: ProgressCallback) -> None:
    ready_marker(folder).unlink(missing_ok=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        shutil.rmtree(folder, ignore_errors=True)
        tell(Progress("make the folder"))
        _call([sys.executable, "-m", "venv", str(folder)], tell)
    words = ["install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    _call([str(python), "-I", "-m", "pip", *words, *index, *pins], tell)
    write_atomic(ready_marker(folder), "\n".join(pins).encode())


def _call(words: Sequence[str], tell: ProgressCallback) -> None:
    """Run a command, showing each of its steps.

    Raises:
        ConvertError: EDGE-CONVERT-081.
    """
    tail: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                tail = [*tail[-5:], line.strip()]
                if line.startswith(_STEPS):
                    tell(Progress(line.strip()[:80]))
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if code:
        raise ConvertError(
            "EDGE-CONVERT-081",
            "pip" if "pip" in words else "venv",
            wanted="an environment",
            got=" | ".join(tail)[-_SAID:] or f"exit {code}",
            hint="see what pip says of the network and the disk, then give the command again: it"
            " goes on where it stopped",
        )
