"""Workers side by side: as many as there are cores, and only while their memory fits.

Stages run in threads, which only wait; what computes is a worker process each, and those pass
through `WorkerPool.admitted`. Whether a large model fits on the disk and into memory is asked
before minutes are spent on it.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import ParamSpec, TypeVar

from edgeserve import jobs
from edgeserve.environment import available_memory, usable_cores
from edgeserve.errors import FilesError, WorkerError

P = ParamSpec("P")
R = TypeVar("R")

#: Threads that wait on workers at once; they cost nothing while they wait.
_THREADS = 64


class WorkerPool:
    """Runs stages side by side, and ends all of them when one fails. A context manager.

    Args:
        slots: Workers at once; None: as many as this process may use cores.
        memory: Tells the bytes that are free now.
    """

    def __init__(
        self, slots: int | None = None, memory: Callable[[], int] = available_memory
    ) -> None:
        self.stop = threading.Event()
        self._slots = slots or usable_cores()
        self._memory = memory
        self._taken: list[int] = []
        self._turn = threading.Condition()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stage")
        self._started: list[Future[object]] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop()
        self._threads.shutdown(wait=True, cancel_futures=kind is not None)

    def start(self, stage: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run ``stage`` in a thread of its own; it may wait for the results of earlier ones."""
        future = self._threads.submit(stage, *args, **kwargs)
        self._started.append(future)  # type: ignore[arg-type]
        future.add_done_callback(self._stop_if_failed)
        return future

    def finish(self) -> None:
        """Wait for everything that was started.

        Raises:
            Exception: what the first stage to fail raised; the others are stopped.
        """
        done, _ = wait(self._started, return_when=FIRST_EXCEPTION)
        failed = [f.exception() for f in self._started if f in done and f.exception()]
        if not failed:
            return
        self._stop()
        wait(self._started)
        stopped = "EDGE-WORKER-006"  # not what failed, but what was stopped for it
        first = next((e for e in failed if getattr(e, "code", "") != stopped), failed[0])
        raise first  # type: ignore[misc]

    @contextlib.contextmanager
    def admitted(self, title: str, memory: int) -> Iterator[None]:
        """Wait for a slot, and until ``memory`` bytes more fit half of what is free; hold both.

        One worker is always let in: whether a model fits is not for an estimate to forbid.

        Raises:
            WorkerError: EDGE-WORKER-006, stopped meanwhile.
        """
        with self._turn:
            while not (self._fits(memory) or self.stop.is_set()):
                self._turn.wait(1.0)  # memory can also be freed by others
            if self.stop.is_set():
                raise jobs.stopped(title)
            self._taken.append(memory)
        try:
            yield
        finally:
            with self._turn:
                self._taken.remove(memory)
                self._turn.notify_all()

    def _fits(self, memory: int) -> bool:
        """What runs already has taken its memory, or will: half of the free is for newcomers."""
        if not self._taken:
            return True
        return len(self._taken) < self._slots and sum(self._taken) + memory <= self._memory() / 2

    def _stop_if_failed(self, future: Future[R]) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._stop()

    def _stop(self) -> None:
        with self._turn:
            self.stop.set()
            self._turn.notify_all()


#: A smaller program fails as soon as it could be asked about.
LARGE = 64 << 20

#: Copies of the weights on the disk while an artifact is made: the converter's and ours.
_ON_DISK = 2.2


def check_resources(
    folder: Path, size: int, memory: Callable[[], int] = available_memory, large: int = LARGE
) -> None:
    """Refuse a conversion that cannot end well.

    Args:
        folder: Where the artifact will lie; it exists.
        size: Bytes of the exported program, nearly all of them weights.
        memory: Tells the bytes that are free.
        large: Programs of fewer bytes are not asked about.

    Raises:
        FilesError: EDGE-FILES-006, less is free on the disk than conversion writes.
        WorkerError: EDGE-WORKER-007, not even the weights fit into memory.
    """
    if size < large:
        return
    free, needed = shutil.disk_usage(folder).free, int(_ON_DISK * size)
    if free < needed:
        wanted = f"{_gigabytes(needed)} free"
        got = _gigabytes(free)
        hint = "free some disk space, or choose a folder on another disk with -o"
        raise FilesError("EDGE-FILES-006", str(folder), wanted=wanted, got=got, hint=hint)
    if (held := memory()) < size:
        wanted = f"{_gigabytes(size)} free, for the weights alone"
        got = _gigabytes(held)
        hint = "end other programs, or convert on a machine with more memory"
        raise WorkerError("EDGE-WORKER-007", "memory", wanted=wanted, got=got, hint=hint)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
