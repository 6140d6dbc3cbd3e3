"""A loaded artifact: `Session` checks what it is fed, runs it, and says what really ran.

The public `run` compares the feed with what the file takes and wraps what the engine throws; the
author of a backend writes `_run` and `_close`. So every format refuses a mistake in the same
words: a runtime fed by the wrong name, dtype or shape answers with its own words, or with
numbers. The check is precomputed (`InputValidator`), so that it costs a few microseconds.

A process that forks keeps its engines' threads to itself: the child has none of them, and whatever
waits for one waits for ever. So the child abandons the engines it was born with, neither running
nor destroying them, and loads its own where it first needs one.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from edgeserve.backends.edge_values import Edge
from edgeserve.backends.graph import ActivationRange
from edgeserve.errors import BackendError, EdgeError
from edgeserve.machine import machine_error
from edgeserve.types.artifact import Artifact
from edgeserve.types.records import Runtime
from edgeserve.types.tensors import IO, DType, TensorSpec
from edgeserve.verified_files import VerifiedFiles

# What numpy calls a dtype, where that differs from our word.
_SPECIAL: dict[str, type] = {"bool": np.bool_, "string": np.object_}


def numpy_dtype(dtype: DType, tensor: str) -> np.dtype[np.generic]:
    """The numpy dtype of a `DType`, native byte order ("string" is object).

    Raises:
        BackendError: EDGE-BACKEND-017, for bfloat16, which numpy does not have.
    """
    if dtype == "bfloat16":
        thing = f"tensor {tensor!r}"
        wanted = "a dtype that numpy has"
        hint = "cast this input or output to float32 inside the model"
        raise BackendError("EDGE-BACKEND-017", thing, wanted=wanted, got="bfloat16", hint=hint)
    return np.dtype(_SPECIAL.get(dtype, dtype))


class _InputSpec(NamedTuple):
    """One input: fixed axes carry a size, named axes the number of a slot shared by all inputs."""

    name: str
    dtype: np.dtype[np.generic]
    rank: int
    fixed: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, int], ...]


class InputValidator:
    """Compares feeds with an `IO`: names, dtypes, ranks, fixed sizes, one size for one name."""

    def __init__(self, io: IO) -> None:
        names = {dim for spec in io.inputs for dim in spec.shape if isinstance(dim, str)}
        self._slots = {name: slot for slot, name in enumerate(sorted(names))}
        self._rows = tuple(self._row(spec) for spec in io.inputs)
        self._shapes = {spec.name: spec.shape for spec in io.inputs}

    def _row(self, spec: TensorSpec) -> _InputSpec:
        axes = list(enumerate(spec.shape))
        return _InputSpec(
            spec.name,
            numpy_dtype(spec.dtype, spec.name),
            len(spec.shape),
            tuple((axis, dim) for axis, dim in axes if isinstance(dim, int)),
            tuple((axis, self._slots[dim]) for axis, dim in axes if isinstance(dim, str)),
        )

    def __call__(self, feed: Mapping[str, np.ndarray]) -> None:
        """Return silently when ``feed`` fits.

        Raises:
            BackendError: EDGE-BACKEND-008 names, -009 dtype, -010 shape.
        """
        if len(feed) != len(self._rows):
            raise self._wrong_names(feed)
        sizes: list[int] = [-1] * len(self._slots)
        for name, dtype, rank, fixed, named in self._rows:
            array = feed.get(name)
            if array is None:
                raise self._wrong_names(feed)
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                raise self._wrong_dtype(name, dtype, array)
            shape = array.shape
            if len(shape) != rank:
                raise self._wrong_shape(name, shape)
            for axis, size in fixed:
                if shape[axis] != size:
                    raise self._wrong_shape(name, shape)
            for axis, slot in named:
                if sizes[slot] != shape[axis]:
                    if sizes[slot] != -1:
                        raise self._unequal(name, axis, shape, sizes[slot])
                    sizes[slot] = shape[axis]

    def _wrong_names(self, feed: Mapping[str, np.ndarray]) -> BackendError:
        wanted = [row.name for row in self._rows]
        got = f"{list(feed)}"
        hint = "feed one array for each input, by these names"
        return BackendError("EDGE-BACKEND-008", "inputs", wanted=f"{wanted}", got=got, hint=hint)

    def _wrong_dtype(self, name: str, dtype: np.dtype[np.generic], got: object) -> BackendError:
        found = str(got.dtype) if isinstance(got, np.ndarray) else type(got).__name__
        hint = f"convert it: numpy.asarray(x, dtype={str(dtype)!r})"
        return BackendError(
            "EDGE-BACKEND-009", f"input {name!r}", wanted=f"a {dtype} array", got=found, hint=hint
        )

    def _wrong_shape(self, name: str, got: tuple[int, ...]) -> BackendError:
        wanted = f"shape {_shape_text(self._shapes[name])}"
        hint = "a word in the shape may be any size, a number may not"
        return _refused_shape(name, wanted, got, hint)

    def _unequal(self, name: str, axis: int, got: tuple[int, ...], size: int) -> BackendError:
        dim = self._shapes[name][axis]
        wanted = f"{size} for {dim!r} (axis {axis}), as in the other inputs"
        return _refused_shape(name, wanted, got, f"give every input the same size of {dim!r}")


def _refused_shape(name: str, wanted: str, shape: tuple[int, ...], hint: str) -> BackendError:
    thing, got = f"input {name!r}", f"shape {_shape_text(shape)}"
    return BackendError("EDGE-BACKEND-010", thing, wanted=wanted, got=got, hint=hint)


def _shape_text(shape: tuple[int | str, ...]) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


#: What to do where an engine fails on a feed that has the right types and shapes.
_COMPARE = (
    "compare the feed's sizes with those the model was exported for, and its values with what the "
    "model takes: ids and indices lie below the size of their table"
)


class LoadOptions(NamedTuple):
    """How an artifact is to be loaded, as `edgeserve.backends.Backend.load` has checked it.

    Attributes:
        delegate: One of the backend's delegates.
        threads: Threads for one run; None: as many as this process may use.
        taps: Inner tensors to return as well.
        optimize: Let the engine rewrite its graph.
        files: The artifact's files, open; None: they are opened by name.
    """

    delegate: str = "cpu"
    threads: int | None = None
    taps: tuple[str, ...] = ()
    optimize: bool = True
    files: VerifiedFiles | None = None

    def path(self, artifact: Artifact, root: Path) -> Path:
        """Where a runtime opens the entry of an artifact of one file: by descriptor, if it can."""
        return self.files.path(artifact.entry) if self.files else root / artifact.entry


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
        again: Loads the same once more, for a process that was forked; None: not to be had.
    """

    note: str = ""
    simulated: bool = False
    again: Callable[[], Session] | None = None
    _abandoned: bool = False

    def __init__(self, io: IO, runtime: Runtime, threads: int, buckets: Sequence[IO] = ()) -> None:
        self.io = io
        self.buckets = tuple(buckets) or (io,)
        self.runtime = runtime
        self.threads = threads
        self._checks = tuple(InputValidator(each) for each in self.buckets)
        self._closed = False
        _SESSIONS.add(self)

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
            BackendError: EDGE-BACKEND-007 closed, or open since before a fork; -008 names, -009
                dtype, -010 shape, -013 the engine failed.
            FilesError: EDGE-FILES-007, the machine failed: it has no memory left, say.
        """
        if self._closed:
            raise _not_open(
                "a closed one", "load the artifact again, or run inside its `with` block"
            )
        if self._abandoned:
            self._load_again()
        self._checks[self._bucket(feed)](feed)
        try:
            return self._run(feed)
        except EdgeError:
            raise
        except Exception as error:  # the border to the engine
            raise self._failed(error) from error

    def _load_again(self) -> None:
        """Take the place of a session of this process (see the module)."""
        if self.again is None:
            raise _not_open("one of the process that forked this one", "load the artifact here")
        with _LOADING:
            if self._abandoned:
                fresh = vars(self.again()) | {"again": self.again}
                self.__dict__.update(fresh)
                self._abandoned = False

    def _failed(self, error: Exception) -> EdgeError:
        engine = f"{self.runtime.name} {self.runtime.version}"
        got = first_line(error)
        return machine_error(error, engine) or BackendError(
            "EDGE-BACKEND-013", engine, wanted="an answer", got=got, hint=_COMPARE
        )

    def inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, ActivationRange]:
        """What inner tensors range over on one feed, by source op; empty: not to be had here.

        Raises:
            BackendError: as `run`.
        """
        self._checks[self._bucket(feed)](feed)
        try:
            return self._inner(feed)
        except Exception as error:  # the border to the engine
            raise self._failed(error) from error

    def index_bounds(self) -> dict[str, int]:
        """The largest index that the program can look up, of inputs that it looks up in tables."""
        return {}

    def edges(self) -> dict[str, tuple[Edge, ...]]:
        """Constants that an input meets, by name of the inputs for which values may be tried.

        An input of whole numbers may meet none and be tried at their ends. Empty: not to be had.
        """
        return {}

    def rounded(self, feed: Mapping[str, np.ndarray], seed: int) -> list[dict[str, np.ndarray]]:
        """Answers to a feed with operations that round otherwise; empty: not to be had here.

        Raises:
            BackendError: as `run`; -013 also where whole numbers leave 32 bits on the way.
        """
        self._checks[self._bucket(feed)](feed)
        try:
            return self._rounded(feed, seed)
        except Exception as error:  # the border to the engine
            raise self._failed(error) from error

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
            if not self._abandoned:
                self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a feed that fits `io`; any exception is wrapped by the caller."""

    def _inner(self, feed: Mapping[str, np.ndarray]) -> dict[str, ActivationRange]:
        """See `inner`; the base shows nothing."""
        return {}

    def _rounded(self, feed: Mapping[str, np.ndarray], seed: int) -> list[dict[str, np.ndarray]]:
        """See `rounded`; the base shows nothing."""
        return []

    @abstractmethod
    def _close(self) -> None:
        """Drop what the engine holds; called once."""


#: Those of this process that still exist.
_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()
_LOADING = threading.Lock()


def _abandon() -> None:
    """In a forked child: keep each engine for good, so that nothing destroys it, not even exit."""
    global _LOADING
    _LOADING = threading.Lock()  # another thread may have held it
    for session in list(_SESSIONS):
        if not session._closed:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(vars(session).copy()))
            session._abandoned = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)


def _not_open(got: str, hint: str) -> BackendError:
    wanted = "an open session of this process"
    return BackendError("EDGE-BACKEND-007", "session", wanted=wanted, got=got, hint=hint)


def first_line(error: BaseException) -> str:
    """An exception's type, and the first line of its message."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
