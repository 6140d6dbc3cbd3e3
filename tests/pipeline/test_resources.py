"""What fits neither disk nor memory is refused before it is converted; a killed run resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeserve.errors import FilesError, WorkerError
from edgeserve.pipeline.scheduler import LARGE, check_resources


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(FilesError) as error:
        check_resources(tmp_path, 1 << 60)
    assert error.value.code == "EDGE-FILES-006"
    assert str(tmp_path) in error.value.message


def test_a_memory_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as error:
        check_resources(tmp_path, 1000, lambda: 999, large=0)
    assert error.value.code == "EDGE-WORKER-007"


def test_what_fits_is_not_refused(tmp_path: Path) -> None:
    check_resources(tmp_path, 1000, lambda: 1000, large=0)
    check_resources(tmp_path, LARGE - 1, lambda: 0)


def test_a_killed_command_goes_on_from_its_last_stage(
    tmp_path: Path, project: Path, edgeserve: Callable[..., Any]
) -> None:
    """Killed, not asked to end, while a format is converted: the export stays."""
    out = tmp_path / "out"
    words = ["convert", "toy:build", "-o", str(out), "--data", "photos"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "edgeserve", *words],
        cwd=project,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not (out / "logs" / "convert-onnx-fp32" / "job.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
    assert not (out / "manifest.json").exists()
    before = (out / "source" / "model.pt2").read_bytes()
    again = edgeserve(*words)
    assert again.code == 0, again.err
    assert (out / "source" / "model.pt2").read_bytes() == before
    assert not [path for path in out.rglob(".tmp-*")]
