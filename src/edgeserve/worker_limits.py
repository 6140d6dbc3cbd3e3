"""What a worker may take of the machine: memory, processor time and the length of its log.

What it computes is somebody else's code. A limit of address space would end honest work, because
runtimes map far more than they use; so the parent looks at the memory that is really held, of the
worker and all its children, and ends the worker before the system has to choose whom to kill. Only
Linux tells (``/proc``); elsewhere the limit of time alone holds.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from edgeserve.environment import available_memory, usable_cores
from edgeserve.errors import UsageError

MB = 1 << 20
#: Environment variable with the megabytes that a worker may hold, in place of any other limit.
WORKER_MB = "EDGESERVE_WORKER_MB"
#: A worker may hold this share of what would be free without it, and so the machine keeps the rest.
_SHARE = 0.9
#: Seconds between two looks, and looks between two searches for new children.
_INTERVAL_S, _SEARCH = 0.05, 4
#: Bytes above which a log is cut, and those of its end that are kept.
_LOG_MOST, _LOG_KEPT = 16 * MB, MB
#: The signal at which a worker writes to its log where it is, and the time that it has for it.
WHERE = getattr(signal, "SIGUSR2", None)
_WHERE_S = 0.1


class WorkerLimits:
    """Holds a worker to its limits while the block runs. A context manager.

    Args:
        pid: The worker, leader of its process group.
        log: Its log, to which it appends.
        memory: Bytes that it may hold besides the share of what is free; None: that share alone.
        seconds: What it may take; its processor time is limited to so much on each core.

    Attributes:
        allowed: Bytes that it was allowed when it held more; 0: it never did.
        held: Bytes that it held then.
    """

    def __init__(self, pid: int, log: Path, memory: int | None, seconds: float) -> None:
        self.allowed = self.held = 0
        self._pid, self._log, self._memory = pid, log, memory
        self._fixed = fixed_limit()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-limits", daemon=True)
        _limit_processor(pid, seconds)

    def __enter__(self) -> WorkerLimits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        _cut_log(self._log)

    def _watch(self) -> None:
        looks, tree = 0, [self._pid]
        while not self._ended.wait(_INTERVAL_S):
            _cut_log(self._log)
            if looks % _SEARCH == 0:
                tree = list(_descendants(self._pid))
            looks += 1
            held = sum(map(held_memory, tree))
            if held > (allowed := self._most(held)):
                self.allowed, self.held = allowed, held
                tell_where(self._pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
                return

    def _most(self, held: int) -> int:
        if self._fixed:
            return self._fixed
        share = int(_SHARE * (available_memory() + held))
        return share if self._memory is None else min(share, self._memory)


def fixed_limit() -> int:
    """Bytes that the user lets a worker hold; 0: nothing was said.

    Raises:
        UsageError: EDGE-USAGE-014, it is not a number.
    """
    given = os.environ.get(WORKER_MB, "")
    if not given or (given.isascii() and given.isdigit() and len(given) < 13 and int(given)):
        return int(given or 0) * MB
    wanted, hint = "a number of megabytes", "set it to e.g. 8192, or unset it"
    raise UsageError("EDGE-USAGE-014", WORKER_MB, wanted=wanted, got=repr(given), hint=hint)


def tell_where(pid: int) -> None:
    """Let a worker that is about to be killed write to its log which line it is at."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if WHERE:
            os.kill(pid, WHERE)
            time.sleep(_WHERE_S)


def _cut_log(log: Path) -> None:
    """Keep the end of a log that has become too long; its writers append."""
    with contextlib.suppress(OSError):
        if log.stat().st_size <= _LOG_MOST:
            return
        fd = os.open(log, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(fd).st_size
            end = os.pread(fd, _LOG_KEPT, size - _LOG_KEPT)
            os.ftruncate(fd, 0)
            os.write(fd, b"[%d bytes are left out here]\n" % (size - len(end)) + end)
        finally:
            os.close(fd)


def _limit_processor(pid: int, seconds: float) -> None:
    """Also end what has left the process group of the worker, which nobody waits for."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        most = math.ceil(seconds) * usable_cores() + 60
        resource.prlimit(pid, resource.RLIMIT_CPU, (most, most + 5))


def _descendants(pid: int) -> Iterator[int]:
    """A process and all that it started, as far as they have not left it."""
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                yield from _descendants(int(child))


def held_memory(pid: int) -> int:
    """Bytes of a process that no file stands for; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kinds = ("RssAnon:", "RssShmem:", "VmSwap:")
        return 1024 * sum(int(words[1]) for words in lines if words and words[0] in kinds)
    return 0
