"""Run a room's verb in a worker process: files in, files out, nothing left running.

`run` starts ``python -P -m edgeserve.worker JOB/job.json`` with the job folder as working
directory, in a process group of its own. The worker decodes the verb's request, runs it and writes
``result.json`` or ``error.json``; its output goes to ``log.txt``, its progress to
``progress.jsonl``. No pickles.

A *verb* is a function ``verb(request) -> result`` over two `Value` types, named by its dotted path:
``edgeserve.convert.export:export_source``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeserve.errors import EdgeError, WorkerError, revive
from edgeserve.types.base import Value, decode, encode

__all__ = ["Job", "Progress", "log_tail", "progress", "run"]

R = TypeVar("R", bound=Value)


class Job(Value, frozen=True):
    """What a worker is to do: the verb, its request, and folders appended to ``sys.path``."""

    verb: str
    request: msgspec.Raw
    path: tuple[str, ...] = ()


class Progress(Value, frozen=True):
    """One step forward: what is being done, and how far (``total`` 0: unknown)."""

    what: str
    done: int = 0
    total: int = 0


def progress(what: str, done: int = 0, total: int = 0) -> None:
    """Tell the waiting parent how far this worker is; outside a worker, do nothing."""
    sink = os.environ.get("EDGESERVE_PROGRESS")
    if sink:
        with open(sink, "ab") as out:
            out.write(encode(Progress(what=what, done=done, total=total)) + b"\n")


def run(
    verb: str,
    request: Value,
    result: type[R],
    folder: Path,
    *,
    timeout: float = 3600.0,
    path: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
) -> R:
    """Run ``verb(request)`` in a worker process and return its result.

    Args:
        verb: ``package.module:function``.
        request: The function's only argument.
        result: Type of what the function returns.
        folder: The job folder; made if missing, kept afterwards (the caller owns it).
        timeout: Seconds after which the whole process group is killed.
        path: Folders appended to the worker's ``sys.path`` (the user's own modules).
        on_progress: Called in this process with each step forward.

    Raises:
        EdgeError: the same error that the verb raised in the worker.
        WorkerError: EDGE-WORKER-001 unexpected exception, -002 crash, -003 timeout.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in ("result.json", "error.json", "progress.jsonl"):
        (folder / stale).unlink(missing_ok=True)
    job = Job(verb=verb, request=msgspec.Raw(encode(request)), path=tuple(path))
    (folder / "job.json").write_bytes(encode(job))
    code = _wait(_start(folder), folder, timeout, on_progress, verb)
    if (folder / "error.json").exists():
        raise _error(folder)
    if code != 0 or not (folder / "result.json").exists():
        raise _crash(verb, code, folder)
    return decode((folder / "result.json").read_bytes(), result)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    folder = folder.absolute()
    environment = os.environ | {
        "EDGESERVE_PROGRESS": str(folder / "progress.jsonl"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "edgeserve.worker", str(folder / "job.json")],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip


def _wait(
    process: subprocess.Popen[bytes],
    folder: Path,
    timeout: float,
    on_progress: Callable[[Progress], None] | None,
    verb: str,
) -> int:
    """Wait for the worker, passing progress on; whatever happens, its process group ends here."""
    deadline = time.monotonic() + timeout
    seen = 0
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=0.1)
                _report(folder, seen, on_progress)
                return code
            seen = _report(folder, seen, on_progress)
            if time.monotonic() > deadline:
                raise WorkerError(
                    "EDGE-WORKER-003", verb, wanted=f"an answer within {timeout:.0f} s", got="none",
                    hint=f"allow more time with --timeout; the log is {folder / 'log.txt'}",
                )  # fmt: skip
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _report(folder: Path, seen: int, on_progress: Callable[[Progress], None] | None) -> int:
    """Pass on the whole progress lines after offset ``seen``; return the new offset."""
    sink = folder / "progress.jsonl"
    if on_progress is None or not sink.exists():
        return seen
    with open(sink, "rb") as lines:
        lines.seek(seen)
        data = lines.read()
    whole = data[: data.rfind(b"\n") + 1]
    for line in whole.splitlines():
        on_progress(decode(line, Progress))
    return seen + len(whole)


def _error(folder: Path) -> EdgeError:
    return revive(decode((folder / "error.json").read_bytes(), dict[str, str | None]))


def _crash(verb: str, code: int, folder: Path) -> WorkerError:
    """Say how a worker died without a word of its own."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    hint = f"the log is {folder / 'log.txt'}"
    if code == -signal.SIGKILL:
        hint = f"the system may have run out of memory; {hint}"
    return WorkerError(
        "EDGE-WORKER-002", verb, wanted="a result", got=f"{how}: {log_tail(folder)}", hint=hint
    )


def log_tail(folder: Path, lines: int = 1) -> str:
    """The last non-empty lines of a job's log (at most 300 characters)."""
    with contextlib.suppress(OSError):
        text = (folder / "log.txt").read_bytes()[-8192:].decode(errors="replace")
        return " | ".join([s for s in text.splitlines() if s.strip()][-lines:])[-300:]
    return ""
