"""What fits neither disk nor memory is refused before it is converted; a killed run resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeserve.errors import EdgeError, FilesError, WorkerError
from edgeserve.pipeline.build import ArtifactBuilder
from edgeserve.pipeline.scheduler import LARGE, check_resources
from edgeserve.pipeline.stage_context import Variant


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


@pytest.mark.parametrize(
    ("got", "code"),
    [("signal SIGSEGV; it last said: run", "EDGE-CONVERT-031"), ("signal SIGKILL", None)],
)
def test_a_crash_is_a_refusal_that_names_format_and_signal(
    tmp_path: Path, got: str, code: str | None
) -> None:
    def work(*_: Any, **__: Any) -> Any:
        raise WorkerError("EDGE-WORKER-002", "verb", wanted="a result", got=got, hint="log.txt")

    bench: Any = SimpleNamespace(root=tmp_path, work=work)
    exported: Any = SimpleNamespace(program=SimpleNamespace(size=1))
    builder = ArtifactBuilder(bench, exported, "model", None)
    with pytest.raises(EdgeError) as error:
        builder._convert(Variant("tflite", "fp32"), tmp_path / "stage", None)
    assert error.value.code == (code or "EDGE-WORKER-002")
    assert code is None or ("tflite-fp32" in error.value.message and got in error.value.message)


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
