"""What callers hand over, and what the pipelines of all media share when they take it.

Callers bring encoded bytes in whatever holds them, or named tensors.

`FeedValidator` checks named tensors against the signature in a few microseconds each. It works
everything out when it is made. What fits costs a comparison of names, dtypes and shapes; only
what does not fit takes the slower road to a conversion or a good error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from edgeserve.errors import InputError, ProcessingError
from edgeserve.tasks import REGISTRY
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.types.vocabulary import Task

if TYPE_CHECKING:
    from edgeserve.types.processing import InputProcessing


def bytes_of(raw: object, thing: str, kinds: str) -> bytes:
    """The bytes of a raw input.

    Args:
        raw: Bytes, a path of a regular file, or a binary file.
        thing: What it holds, as errors call it: "picture".
        kinds: What else a caller might have given, as errors list it.

    Raises:
        InputError: EDGE-INPUT-001 it cannot be read, -007 it is something else.
    """
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, bytearray | memoryview):
        return bytes(raw)
    if isinstance(raw, str | os.PathLike):
        return _read_path(os.fspath(raw), thing)
    try:
        content = raw.read() if hasattr(raw, "read") else None
    except Exception as error:  # closed, on a disk that fails, or a class of the caller's own
        raise _unreadable(f"file of a {thing}", error, "open it anew, where it begins") from error
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    opened_as_text = isinstance(content, str)
    raise InputError(
        "EDGE-INPUT-007",
        "raw input",
        wanted=f"bytes, a path, a binary file, {kinds}",
        got="a file opened as text"
        if opened_as_text
        else f"{type(raw).__module__}.{type(raw).__qualname__}",
        hint="open the file with mode 'rb'" if opened_as_text else "convert it to one of these",
    )


def _read_path(path: str | bytes, thing: str) -> bytes:
    try:
        if not os.path.isfile(path):  # a pipe or device would be read for ever
            raise OSError("no such file" if not os.path.exists(path) else "not a regular file")
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        hint = f"a str is a path here; hand over the encoded {thing} itself as bytes"
        raise _unreadable(f"{thing} {path!r}", error, hint) from error


def _unreadable(where: str, error: Exception, hint: str) -> InputError:
    wanted = "a file that can be read"
    got = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return InputError("EDGE-INPUT-001", where, wanted=wanted, got=got, hint=hint)


class FeedValidator:
    """Checks feeds against one signature. Immutable, so threads may share it."""

    __slots__ = ("_dims", "_names", "_ports")

    def __init__(self, signature: Signature) -> None:
        self._ports = tuple((s.name, _numpy_dtype(s.dtype), s.shape, s) for s in signature.inputs)
        self._names = frozenset(s.name for s in signature.inputs)
        self._dims = signature.dims

    @property
    def names(self) -> list[str]:
        """Names of the inputs, in the signature's order."""
        return [name for name, *_ in self._ports]

    def __call__(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Check one feed; see `Processor.check_feed`."""
        if feed.keys() != self._names:
            raise self._wrong_names(feed)
        checked: dict[str, np.ndarray] = {}
        sizes: dict[str, int] = {}
        for name, dtype, shape, spec in self._ports:
            array = feed[name]
            if type(array) is not np.ndarray:
                array = _plain_array(name, array)
            if array.dtype != dtype:
                array = _converted(spec, dtype, array)
            if array.shape != shape:
                self._check_shape(spec, array.shape, sizes)
            checked[name] = array if array.flags.c_contiguous else array.copy(order="C")
        return checked

    def _check_shape(self, spec: TensorSpec, got: tuple[int, ...], sizes: dict[str, int]) -> None:
        # A spec with named dimensions never equals a shape, so each dimension is looked at here.
        if len(got) != len(spec.shape):
            raise _wrong_shape(spec, got, f"has {len(got)} dimensions instead of {len(spec.shape)}")
        for axis, (size, wanted) in enumerate(zip(got, spec.shape, strict=True)):
            if isinstance(wanted, int):
                if size != wanted:
                    raise _wrong_shape(spec, got, f"axis {axis} is {size} instead of {wanted}")
                continue
            low, high = self._dims[wanted]
            if not low <= size <= high:
                raise _wrong_size(spec, wanted, f"{low} to {high}", size)
            if sizes.setdefault(wanted, size) != size:
                raise _wrong_size(spec, wanted, f"{sizes[wanted]} as in an earlier input", size)

    def _wrong_names(self, feed: Mapping[str, Any]) -> InputError:
        missing = [name for name in self.names if name not in feed]
        unknown = sorted(str(name) for name in feed if name not in self._names)
        got = [
            f"{word} {names}" for word, names in (("no", missing), ("unknown", unknown)) if names
        ]
        where = "named tensors"
        wanted = f"exactly the inputs {self.names}"
        hint = "name each input as the signature does (`edgeserve inspect` shows it)"
        return InputError("EDGE-INPUT-010", where, wanted=wanted, got=", ".join(got), hint=hint)


#: numpy has no bfloat16 of its own, so this stands in: no caller's array has such a dtype, which
#: sends every array to `_converted`, where it is known by the name of its dtype.
_BFLOAT16 = np.dtype([("bfloat16", "V2")])


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        return _BFLOAT16
    return np.dtype(object) if dtype == "string" else np.dtype(dtype)


def _plain_array(name: str, value: object) -> np.ndarray:
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value.view(np.ndarray)
    wanted = "a numpy array"
    got = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = "convert it with np.asarray (a torch tensor with .numpy()), giving the dtype"
    raise InputError("EDGE-INPUT-011", f"input {name!r}", wanted=wanted, got=got, hint=hint)


def _converted(spec: TensorSpec, dtype: np.dtype[Any], array: np.ndarray) -> np.ndarray:
    """Convert where no value changes its meaning: within integers, and within floats."""
    if array.dtype.name == spec.dtype and dtype is _BFLOAT16:
        return array
    if dtype.kind == "O" and array.dtype.kind in "UST":
        return array.astype(object)
    kinds = array.dtype.kind + dtype.kind
    if kinds == "ff" and (dtype.itemsize >= 4 or array.dtype.itemsize <= dtype.itemsize):
        return _to_float(spec, dtype, array)
    if kinds in ("ii", "iu", "ui", "uu"):
        return _to_integer(spec, dtype, array)
    raise _wrong_dtype(spec, array)


def _to_float(spec: TensorSpec, dtype: np.dtype[Any], array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if dtype.itemsize < array.dtype.itemsize:
        overflowed = np.isinf(converted) & ~np.isinf(array)
        if overflowed.any():
            raise _out_of_range(spec, array, float(array[overflowed][0]))
    return converted


def _to_integer(spec: TensorSpec, dtype: np.dtype[Any], array: np.ndarray) -> np.ndarray:
    limits = np.iinfo(dtype)
    if array.size:
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                raise _out_of_range(spec, array, value)
    return array.astype(dtype)


def _wrong_dtype(spec: TensorSpec, array: np.ndarray) -> InputError:
    where = f"input {spec.name!r}"
    hint = f"convert it on purpose with .astype({spec.dtype!r}), after any scaling it needs"
    return InputError("EDGE-INPUT-012", where, wanted=spec.dtype, got=str(array.dtype), hint=hint)


def _out_of_range(spec: TensorSpec, array: np.ndarray, value: float) -> InputError:
    wanted = f"values that fit into {spec.dtype}"
    got = f"{value} in {array.dtype}"
    hint = "look at how this tensor was made: the model was built for smaller values"
    return InputError("EDGE-INPUT-013", f"input {spec.name!r}", wanted=wanted, got=got, hint=hint)


def _wrong_shape(spec: TensorSpec, got: tuple[int, ...], why: str) -> InputError:
    batch = "the first axis is the batch, also for one sample: array[None] adds it"
    axes = "make the tensor as the model's own preprocessing does; check the order of its axes"
    where = f"input {spec.name!r}"
    wanted = f"shape {list(spec.shape)}"
    hint = batch if len(got) == len(spec.shape) - 1 else axes
    return InputError("EDGE-INPUT-014", where, wanted=wanted, got=f"{list(got)}: {why}", hint=hint)


def _wrong_size(spec: TensorSpec, dim: str, wanted: str, size: int) -> InputError:
    where = f"input {spec.name!r}, dimension {dim!r}"
    hint = "split a batch that is too large; export again with a wider range where you need one"
    return InputError("EDGE-INPUT-015", where, wanted=wanted, got=str(size), hint=hint)


#: Called after each step with its name and the seconds it took.
OnStep = Callable[[str, float], None]


class StepTimer:
    """Tells a callback, where there is one, how long each step took, from one call to the next."""

    def __init__(self, on_step: OnStep | None) -> None:
        self._on_step = on_step
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        """End the step called ``name``."""
        if self._on_step:
            self._on_step(name, time.perf_counter() - self._since)
        self._since = time.perf_counter()  # the callback's own time is nobody's step


def step_name(step: InputStep) -> str:
    """Name of a step without its version, as timings show it: "resize"."""
    return step.tag.partition("/")[0]


def wrong_order(processing: InputProcessing, wanted: str, hint: str) -> ProcessingError:
    """EDGE-PROCESS-001, the steps of an input are others than its medium has, or out of order."""
    where = f"steps of input {processing.name!r}"
    got = ", ".join(map(step_name, processing.steps)) or "no steps"
    return ProcessingError("EDGE-PROCESS-001", where, wanted=wanted, got=got, hint=hint)


def check_task(task: Task, medium: str) -> None:
    """Refuse the steps of one medium for a task of another.

    Raises:
        ProcessingError: EDGE-PROCESS-005.
    """
    wanted = (REGISTRY[task].medium if task in REGISTRY else None) or medium
    if wanted != medium:
        raise ProcessingError(
            "EDGE-PROCESS-005",
            f"task {task!r}",
            wanted=f"{wanted} processing",
            got=f"steps for {medium}",
            hint="declare the task that fits, or leave the inputs empty and bring named tensors",
        )


def check_names(made: Iterable[str], signature: Signature, raw: str) -> None:
    """All inputs of a model are made from its one raw input, or none.

    Args:
        made: Names of the inputs that have steps.
        signature: The model's.
        raw: What the raw input is called.

    Raises:
        ProcessingError: EDGE-PROCESS-002.
    """
    names, wanted = set(made), {spec.name for spec in signature.inputs}
    if names != wanted:
        raise ProcessingError(
            "EDGE-PROCESS-002",
            "processing",
            wanted=f"steps for each of the inputs {sorted(wanted)}",
            got=f"steps for {sorted(names)}",
            hint=f"name them as the signature does; either all are made from the {raw} or none",
        )


def sample_signature(signature: Signature) -> Signature:
    """The inputs of one sample: the same without their batch axis."""
    inputs = tuple(replace(spec, shape=spec.shape[1:]) for spec in signature.inputs)
    return Signature(inputs=inputs, outputs=(), dims=signature.dims)
