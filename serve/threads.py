"""Threads for work that may never end: they do not hold up the end of the process.

``concurrent.futures`` joins its threads when the interpreter ends. A model that does not come back
would keep the process alive for ever.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """An executor of so many daemon threads, each started when it is needed.

    Args:
        workers: Threads at most.
        name: Of the threads.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(0)
        self._left, self._name = workers, name

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor`; one thread at a time may call it."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        if not self._free.acquire(blocking=False) and self._left:
            self._left -= 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let each thread end once its work has; nobody waits for that."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
            del job  # it holds the result
            self._free.release()
        self._jobs.put(None)  # for the next thread
