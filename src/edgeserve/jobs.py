"""Run a room's verb in a worker process: files in, files out, nothing left running.

`run` starts `edgeserve.worker` on ``JOB/job.json`` with the job folder as working directory, in a
process group of its own. The worker decodes the verb's request, runs it and writes
``result.json`` or ``error.json``; its output goes to ``log.txt``, its progress to
``progress.jsonl``. No pickles.

A *verb* is a function ``verb(request) -> result`` over two `Value` types, named by its dotted path:
``edgeserve.convert.export:export_source``.

A worker may ask a function of its parent (`ask_parent`), which the parent gave to `run`: messages
travel as bytes over a socket pair that only this worker inherits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeserve import worker_process
from edgeserve.errors import EdgeError, WorkerError, revive
from edgeserve.files import unwritable, write_atomic
from edgeserve.types.base import Value, decode, encode
from edgeserve.user_lines import line_of_text
from edgeserve.worker_limits import MB, WORKER_MB, WorkerLimits, fixed_limit, tell_where
from edgeserve.worker_process import WorkerProcess, read_exactly

R = TypeVar("R", bound=Value)

#: Environment variable that tells a worker where its progress goes.
PROGRESS = "EDGESERVE_PROGRESS"
#: Environment variable with the descriptor over which a worker asks its parent.
_CALLS = "EDGESERVE_CALLS"
_LENGTH = struct.Struct("<Q")

_POLL = 0.02
#: Free bytes below which a worker without an answer is put down to the full disk.
_FULL = 1 << 16
#: What stands above a trace of `faulthandler`.
_INNERMOST_FIRST = "(most recent call first)"


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
    sink = os.environ.get(PROGRESS)
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
    stop: threading.Event | None = None,
    answer: Callable[[bytes], bytes] | None = None,
    imports: Sequence[str] | None = None,
    memory: int | None = None,
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
        stop: Once set, the worker is ended.
        answer: Answers `ask_parent` in the worker. It is called in this thread, one call at a
            time, and its time does not count towards ``timeout``; what it raises ends the worker.
        imports: Slow modules that the verb will import. The worker is then forked, on Linux, from a
            process that has imported them for all workers of this process; None: its process is
            new, as one whose memory or start is measured has to be.
        memory: Bytes that the worker and what it starts may hold, see `WorkerLimits`.

    Raises:
        EdgeError: the same error that the verb raised in the worker.
        WorkerError: EDGE-WORKER-001 unexpected exception, -002 crash, -003 timeout, -004 not a
            verb, -005 the result is not a ``result``, -006 stopped, -008 out of memory.
        FilesError: EDGE-FILES-001, the job folder cannot be written.
        UsageError: EDGE-USAGE-014, the limit of memory that the user set is not a number.
    """
    fixed_limit()  # before anything is started
    folder = folder.absolute()
    job = Job(verb=verb, request=msgspec.Raw(encode(request)), path=tuple(path))
    write_atomic(folder / "job.json", encode(job))
    for stale in ("result.json", "error.json", "progress.jsonl"):
        (folder / stale).unlink(missing_ok=True)  # no answer of an earlier run counts as this one's
    stop = stop or threading.Event()
    with _Calls(answer) as calls:
        if imports is not None:
            imports = (*imports, verb.partition(":")[0])
        worker = _start(folder, calls, imports)
        limits = WorkerLimits(worker.pid, folder / "log.txt", memory, timeout)
        code = _wait(worker, limits, job, folder, timeout, on_progress, stop, calls)
    if limits.allowed:
        raise _too_much_memory(job, limits, folder)
    if (folder / "error.json").exists():
        raise revive(decode((folder / "error.json").read_bytes(), dict[str, str | None]))
    if code != 0 or not (folder / "result.json").exists():
        raise _crash(job, code, folder)
    try:
        return decode((folder / "result.json").read_bytes(), result)
    except msgspec.DecodeError as error:
        hint = "run the command again; should it stay, report it as a fault of edgeserve"
        raise WorkerError(
            "EDGE-WORKER-005", verb, wanted=f"a {result.__name__}", got=str(error), hint=hint
        ) from error


def ask_parent(message: bytes) -> bytes:
    """In a worker: send a message to the parent's ``answer`` function and wait for its answer."""
    with socket.socket(fileno=os.dup(int(os.environ[_CALLS]))) as channel:
        _send(channel, message)
        reply = _receive(channel)
    if reply is None:
        raise ConnectionError("the process that started this worker no longer answers")
    return reply


def _send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(_LENGTH.pack(len(message)) + message)


def _receive(channel: socket.socket) -> bytes | None:
    """One message; None where the other end has gone."""
    head = read_exactly(channel, _LENGTH.size)
    return head and read_exactly(channel, *_LENGTH.unpack(head))


class _Calls:
    """The parent's end of the channel over which a worker asks it. A context manager.

    Args:
        answer: The function that answers; None: the worker has nothing to ask.
    """

    def __init__(self, answer: Callable[[bytes], bytes] | None) -> None:
        self._answer = answer
        self._ours: socket.socket | None = None
        self._theirs: socket.socket | None = None
        if answer:
            self._ours, self._theirs = socket.socketpair()

    def __enter__(self) -> _Calls:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._ours, self._theirs):
            if end is not None:
                end.close()

    @property
    def inherited(self) -> int | None:
        """The descriptor that the worker inherits."""
        return self._theirs.fileno() if self._theirs else None

    def started(self) -> None:
        """The worker holds its end by now: drop ours of it, so that its death can be seen."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def serve(self, seconds: float) -> float:
        """Wait so long for a message and answer it; returns the seconds that the answer took."""
        if self._ours is None or self._answer is None:
            time.sleep(seconds)
            return 0.0
        ready = select.poll()  # select() knows no descriptor above 1023
        ready.register(self._ours, select.POLLIN)
        if not ready.poll(1000 * seconds):
            return 0.0
        message = _receive(self._ours)
        if message is None:  # the worker has closed its end, or died
            self._ours.close()
            self._ours = None
            return 0.0
        began = time.monotonic()
        reply = self._answer(message)
        with contextlib.suppress(ConnectionError):  # it died meanwhile, which `_wait` will find
            _send(self._ours, reply)
        return time.monotonic() - began


def stopped(verb: str) -> WorkerError:
    """The error of a worker that was ended, or not started, because its result is not wanted."""
    got = "a stop: another part of the command failed"
    hint = "see what the other part said, and run the command again"
    return WorkerError("EDGE-WORKER-006", verb, wanted="to go on", got=got, hint=hint)


def _start(folder: Path, calls: _Calls, imports: Sequence[str] | None) -> WorkerProcess:
    # OpenMP threads that spin while they wait cost torch fifteen times the CPU when others run.
    every = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    every |= {"HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    added = {PROGRESS: str(folder / "progress.jsonl")}
    channel = (_CALLS, calls.inherited) if calls.inherited is not None else None
    worker = worker_process.start(folder / "job.json", every, added, channel, imports)
    calls.started()
    return worker


def _wait(
    worker: WorkerProcess,
    limits: WorkerLimits,
    job: Job,
    folder: Path,
    timeout: float,
    on_progress: Callable[[Progress], None] | None,
    stop: threading.Event,
    calls: _Calls,
) -> int:
    """Wait for the worker, passing progress on; whatever happens, its process group ends here."""
    deadline = time.monotonic() + timeout
    seen = 0
    try:
        with limits:
            while not worker.ended():
                seen = _report(folder, seen, on_progress)
                if stop.is_set():
                    raise stopped(job.verb)
                if time.monotonic() > deadline:
                    raise _too_late(worker, job, folder, timeout)
                deadline += calls.serve(_POLL)
    finally:
        code = _end(worker)
    _report(folder, seen, on_progress)
    return code


def _too_late(worker: WorkerProcess, job: Job, folder: Path, timeout: float) -> WorkerError:
    got = f"none; it last said: {log_tail(folder) or 'nothing'}"
    tell_where(worker.pid)
    return WorkerError(
        "EDGE-WORKER-003",
        job.verb,
        wanted=f"an answer within {timeout:g} s",
        got=got,
        hint=f"allow more time, or see where it hangs: the log is {folder / 'log.txt'}",
        source_line=_last_line(job, folder),
    )


def _end(worker: WorkerProcess) -> int:
    """Kill what is left of the worker's process group, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)
    code = worker.reap()
    # Grandchildren die by the same signal, but init buries them: give it a moment, not for ever.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        for _ in range(100):
            os.killpg(worker.pid, 0)
            time.sleep(0.01)
    return code


def _report(folder: Path, seen: int, on_progress: Callable[[Progress], None] | None) -> int:
    """Pass on the whole progress lines after offset ``seen``; return the new offset."""
    sink = folder / "progress.jsonl"
    if on_progress is None or not sink.exists():
        return seen
    with open(sink, "rb") as lines:
        lines.seek(seen)
        data = lines.read()
    whole = data[: data.rfind(b"\n") + 1]
    steps = []
    for line in whole.splitlines():
        # A full disk can tear a line: progress is a courtesy and must not cost the work.
        with contextlib.suppress(msgspec.DecodeError):
            steps.append(decode(line, Progress))
    for step in steps:
        on_progress(step)
    return seen + len(whole)


def _crash(job: Job, code: int, folder: Path) -> EdgeError:
    """Say how a worker died without a word of its own."""
    how = f"signal {_signal_name(-code)}" if code < 0 else f"exit status {code}"
    if shutil.disk_usage(folder).free < _FULL:  # it could not even write its own error
        return unwritable(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), folder)
    hint = f"the log is {folder / 'log.txt'}"
    if code == -signal.SIGKILL:
        hint = f"the system may have run out of memory; {hint}"
    tail = log_tail(folder)
    got = f"{how}; it last said: {tail}" if tail else how
    line = _last_line(job, folder)
    return WorkerError(
        "EDGE-WORKER-002", job.verb, wanted="a result", got=got, hint=hint, source_line=line
    )


def _too_much_memory(job: Job, limits: WorkerLimits, folder: Path) -> WorkerError:
    held, allowed = (f"{n // MB} MB" for n in (limits.held, limits.allowed))
    return WorkerError(
        "EDGE-WORKER-008",
        job.verb,
        wanted=f"at most {allowed} of memory",
        got=held,
        hint=f"use a smaller model or end other programs; {WORKER_MB} sets the limit in MB",
        source_line=_last_line(job, folder),
    )


def _last_line(job: Job, folder: Path) -> str | None:
    """The user's line that a worker was at when it wrote to its log where it is, or None."""
    _, found, trace = _log_end(folder).rpartition(_INNERMOST_FIRST)
    if not found or not job.path:
        return None
    return line_of_text("\n".join(reversed(trace.splitlines())), Path(job.path[0]))


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)  # a real-time signal has no name


def log_tail(folder: Path, lines: int = 1) -> str:
    """The last non-empty lines of a job's log (at most 300 characters), without a crash's trace."""
    text = _log_end(folder).partition("Fatal Python error")[0]
    return " | ".join([s for s in text.splitlines() if s.strip()][-lines:])[-300:]


def _log_end(folder: Path) -> str:
    with contextlib.suppress(OSError), open(folder / "log.txt", "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 65_536))
        return log.read().decode(errors="replace")
    return ""
