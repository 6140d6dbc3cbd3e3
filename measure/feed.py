"""What is fed while measuring: sizes for dynamic dimensions, seeded tensors, or a sample's own."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgeserve.errors import MeasureError
from edgeserve.types.tensors import IO, Signature, TensorSpec

__all__ = ["bad_sample", "batch_size", "named_tensors", "seeded_tensors", "sizes", "sizes_of"]

#: A dynamic dimension is measured at the top of its range, but not above this.
_USUAL_TOP = 256

#: Dtypes whose whole range is data (pixels, quantized values). Other integers are mostly ids, masks
#: and lengths, for which only 0 and 1 are safe.
_WHOLE_RANGE = ("uint8", "int8")


def batch_size(io: IO, signature: Signature, asked: int | None) -> int:
    """Samples a run: what was asked for, where the file takes it.

    Raises:
        MeasureError: EDGE-MEASURE-002, the file takes other batch sizes only.
    """
    fixed = _leading(io)
    name = signature.batch_dim if isinstance(fixed, str) else None
    if name is not None:
        low, high = signature.dims[name]
        size = max(1, low) if asked is None else asked
        if not max(1, low) <= size <= high:
            raise _wrong_batch(size, f"{max(1, low)} to {high}")
        return size
    only = fixed if isinstance(fixed, int) else 1
    if asked not in (None, only):
        raise _wrong_batch(asked, str(only))
    return only


def _leading(io: IO) -> int | str | None:
    """The first dimension of all inputs and outputs, where they agree on one."""
    firsts = {spec.shape[0] if spec.shape else None for spec in (*io.inputs, *io.outputs)}
    if all(isinstance(first, str) for first in firsts):
        return next(iter(firsts), None)
    return firsts.pop() if len(firsts) == 1 else None


def _wrong_batch(size: int | None, wanted: str) -> MeasureError:
    return MeasureError(
        "EDGE-MEASURE-002", "batch", wanted=wanted, got=str(size),
        hint="ask for a batch size that the model was exported for",
    )  # fmt: skip


def sizes(io: IO, signature: Signature, batch: int, given: Mapping[str, int]) -> dict[str, int]:
    """A size for each dynamic dimension, by the source's name for it.

    Raises:
        MeasureError: EDGE-MEASURE-003, a size is out of range or cannot be chosen.
    """
    found = {}
    for index, spec in enumerate(io.inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str):
                name = _name(signature, index, axis, dim)
                found[name] = (
                    batch if name == signature.batch_dim else _size(name, signature, given)
                )
    return found


def _name(signature: Signature, index: int, axis: int, own: str) -> str:
    """The source's name for a dimension; converters may have renamed it in the file."""
    if own in signature.dims:
        return own
    spec = signature.inputs[index] if index < len(signature.inputs) else None
    theirs = spec.shape[axis] if spec and axis < len(spec.shape) else own
    return theirs if isinstance(theirs, str) else own


def _size(name: str, signature: Signature, given: Mapping[str, int]) -> int:
    low, high = signature.dims.get(name, (0, 0))
    size = given.get(name, max(low, min(high, _USUAL_TOP)))
    known = name in signature.dims
    if (known and not low <= size <= high) or (not known and name not in given):
        raise MeasureError(
            "EDGE-MEASURE-003", f"dimension {name!r}",
            wanted=f"{low} to {high}" if known else "a size", got=str(size) if known else "none",
            hint=f"give the request a size for {name!r} in dims",
        )  # fmt: skip
    return size


def sizes_of(tensors: Mapping[str, np.ndarray], io: IO, signature: Signature) -> dict[str, int]:
    """The sizes that given tensors have in the dynamic dimensions."""
    return {
        _name(signature, index, axis, dim): tensors[spec.name].shape[axis]
        for index, spec in enumerate(io.inputs)
        for axis, dim in enumerate(spec.shape)
        if isinstance(dim, str)
    }


def seeded_tensors(
    io: IO, signature: Signature, dims: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """Tensors of the right shapes: standard normal floats, whole-range bytes, and integers 0 and 1.

    Raises:
        MeasureError: EDGE-MEASURE-004, a dtype that no numbers can be drawn for.
    """
    rng = np.random.default_rng(seed)
    feed = {}
    for index, spec in enumerate(io.inputs):
        shape = tuple(
            dims[_name(signature, index, axis, dim)] if isinstance(dim, str) else dim
            for axis, dim in enumerate(spec.shape)
        )
        feed[spec.name] = _draw(rng, spec, shape)
    return feed


def _draw(rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    if spec.dtype in ("string", "bfloat16"):
        raise MeasureError(
            "EDGE-MEASURE-004", f"input {spec.name!r}", wanted="numbers that numpy can hold",
            got=spec.dtype, hint="give a sample (an .npz of named tensors, or a raw input)",
        )  # fmt: skip
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape, np.float32).astype(dtype)
    if spec.dtype in _WHOLE_RANGE:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.integers(0, 2, shape).astype(dtype)


def named_tensors(path: Path, io: IO, batch: int) -> dict[str, np.ndarray]:
    """Read an ``.npz`` of the model's inputs by name; rows are repeated to fill the batch.

    Raises:
        MeasureError: EDGE-MEASURE-005, the file cannot be read or holds other tensors.
    """
    arrays = _load(path)
    wanted = {spec.name: spec for spec in io.inputs}
    if set(arrays) != set(wanted):
        raise bad_sample(path, f"tensors {sorted(wanted)}", str(sorted(arrays)))
    return {name: _fit(path, spec, arrays[name], batch) for name, spec in wanted.items()}


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path):  # numpy would also take a bare .npy or try to unpickle
            pass
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise bad_sample(path, "an .npz of named tensors", str(error)) from error


def _fit(path: Path, spec: TensorSpec, array: np.ndarray, batch: int) -> np.ndarray:
    if array.ndim != len(spec.shape):
        raise bad_sample(path, f"{spec.name!r} of {len(spec.shape)} axes", f"{array.ndim}")
    if spec.shape and array.shape[0] and (spec.shape[0] == batch or isinstance(spec.shape[0], str)):
        array = np.take(array, np.arange(batch) % array.shape[0], axis=0)
    try:
        return np.ascontiguousarray(array.astype(spec.dtype, casting="same_kind", copy=False))
    except TypeError as error:
        raise bad_sample(path, f"{spec.name!r} as {spec.dtype}", str(array.dtype)) from error


def bad_sample(path: Path, wanted: str, got: str) -> MeasureError:
    """The error for a sample that does not fit the model (EDGE-MEASURE-005)."""
    return MeasureError(
        "EDGE-MEASURE-005", f"sample {path.name}", wanted=wanted, got=got,
        hint="give a raw input that the model's processing takes, or an .npz of its named inputs",
    )  # fmt: skip
