"""A loaded artifact: `Session` checks what it is fed, runs it, and says what really ran.

The public `run` compares the feed with what the file takes and wraps what the engine throws; the
author of a backend writes `_run` and `_close`. So every format refuses a mistake in the same words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from edgeserve.backends.feeds import FeedCheck
from edgeserve.backends.inner import Inner
from edgeserve.errors import BackendError, EdgeError
from edgeserve.types.records import Runtime
from edgeserve.types.tensors import IO

__all__ = ["Session"]

#: What to do where an engine fails on a feed that has the right types and shapes.
_COMPARE = (
    "compare the feed's sizes with those the model was exported for, and its values with what the "
    "model takes: ids and indices lie below the size of their table"
)


class Session(ABC):
    """A loaded artifact, ready to run; a context manager. `run` may be called from several threads.

    Attributes:
        io: What the file takes and gives; of a file with several signatures, the largest.
        buckets: All signatures of the file, smallest first; only ``io`` where it has one.
        runtime: The engine, its version and the delegate that really runs.
        threads: Threads that one `run` may use.
        note: What a reader of its answers has to know of the engine ("fp16 rounding; not on Apple
            hardware"); follows the engine's name wherever a proof says what ran. Empty: nothing.
        simulated: This is not the format's own engine but stands in for it: its numbers count, its
            times say nothing and are not measured.
    """

    note: str = ""
    simulated: bool = False

    def __init__(self, io: IO, runtime: Runtime, threads: int, buckets: Sequence[IO] = ()) -> None:
        self.io = io
        self.buckets = tuple(buckets) or (io,)
        self.runtime = runtime
        self.threads = threads
        self._checks = tuple(FeedCheck(each) for each in self.buckets)
        self._closed = False

    @property
    def delegate(self) -> str:
        """What really runs: "cpu", "cuda", ... never merely what was asked for."""
        return self.runtime.delegate

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once.

        Args:
            feed: One array for each of `io.inputs`, with exactly its dtype and a shape that fits
                (of a file with several signatures, the shapes of one of them).

        Returns:
            One array for each of `io.outputs`, then for each tap, by name.

        Raises:
            BackendError: EDGE-BACKEND-007 closed, -008 names, -009 dtype, -010 shape, -013 the
                engine failed.
        """
        if self._closed:
            raise BackendError(
                "EDGE-BACKEND-007",
                "session",
                wanted="an open session",
                got="a closed one",
                hint="load the artifact again, or run inside its `with` block",
            )
        self._checks[self._bucket(feed)](feed)
        try:
            return self._run(feed)
        except EdgeError:
            raise
        except Exception as error:  # the border to the engine
            raise BackendError(
                "EDGE-BACKEND-013",
                f"{self.runtime.name} {self.runtime.version}",
                wanted="an answer",
                got=_first_line(error),
                hint=_COMPARE,
            ) from error

    def inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, Inner]:
        """What inner tensors range over on one feed, by source op; empty: not to be had here.

        Raises:
            BackendError: as `run`.
        """
        self._checks[self._bucket(feed)](feed)
        try:
            return self._inner(feed)
        except Exception as error:  # the border to the engine
            raise BackendError(
                "EDGE-BACKEND-013",
                f"{self.runtime.name} {self.runtime.version}",
                wanted="an answer",
                got=_first_line(error),
                hint=_COMPARE,
            ) from error

    def _bucket(self, feed: Mapping[str, np.ndarray]) -> int:
        """Which of `buckets` has a feed's shapes; the last where none has, whose check says so."""
        if len(self.buckets) == 1:
            return 0
        shapes = {name: np.shape(array) for name, array in feed.items()}
        for i, io in enumerate(self.buckets):
            if all(shapes.get(spec.name) == spec.shape for spec in io.inputs):
                return i
        return len(self.buckets) - 1

    def close(self) -> None:
        """Release the engine; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a feed that fits `io`; any exception is wrapped by the caller."""

    def _inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, Inner]:
        """See `inner`; the base shows nothing."""
        return {}

    @abstractmethod
    def _close(self) -> None:
        """Drop what the engine holds; called once."""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
