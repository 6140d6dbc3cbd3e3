"""The ``edgeserve`` command: in this process, whose workers share a fork server, or in its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgeserve.cli import main

__all__ = ["Done", "command", "command_process"]


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def command(*words: str, cwd: Path) -> Done:
    """Run ``edgeserve WORDS`` in a folder, in this process: no interpreter and no server start."""
    out, err = io.StringIO(), io.StringIO()
    terminated = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["edgeserve", *words])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        try:
            with pytest.raises(SystemExit) as leaving:
                main()
        finally:
            signal.signal(signal.SIGTERM, terminated)
    return Done(int(leaving.value.code or 0), out.getvalue(), err.getvalue())


def command_process(*words: str, cwd: Path) -> Done:
    """Run ``edgeserve WORDS`` in a folder, as a user does."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "edgeserve", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONWARNINGS": "default"},
    ) as process:
        try:
            out, err = process.communicate(timeout=300)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return Done(process.returncode, out, err)
