"""What is fed while measuring: sizes for dynamic dimensions, seeded tensors, or a sample's own.

Feeds are the source's, by its names, types and shapes; `edgeserve.backends.adapter` makes them fit
a file that takes int32 ids or a few fixed lengths only, as it does for the Wrapper.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from edgeserve.backends.batching import batch_range
from edgeserve.errors import MeasureError
from edgeserve.types.tensors import IO, Signature, TensorSpec

#: A dynamic dimension is measured at the top of its range, but not above this.
_DEFAULT_MAX_SIZE = 256

#: Dtypes whose whole range is data (pixels, quantized values). Other integers are mostly ids, masks
#: and lengths, for which only 0 and 1 are safe.
_WHOLE_RANGE = ("uint8", "int8")


def batch_size(io: IO, signature: Signature, asked: int | None) -> int:
    """Samples a run: the requested number, where the file accepts it.

    Raises:
        MeasureError: EDGE-MEASURE-002, the file accepts other batch sizes only.
    """
    low, high = batch_range(signature, io)
    size = low if asked is None else asked
    if not low <= size <= high:
        raise MeasureError(
            "EDGE-MEASURE-002",
            "batch",
            wanted=str(low) if low == high else f"{low} to {high}",
            got=str(size),
            hint="ask for a batch size that the model was exported for",
        )
    return size


def choose_sizes(
    ios: Sequence[IO],
    signature: Signature,
    batch: int,
    given: Mapping[str, int],
    padded: Collection[str] = (),
) -> dict[str, int]:
    """A size for each dynamic dimension of the source, by its name.

    Args:
        ios: All signatures of the file.
        signature: The source's.
        batch: Size of the batch.
        given: Sizes asked for.
        padded: Inputs that may be padded to a larger size that the file is fixed to.

    Raises:
        MeasureError: EDGE-MEASURE-003, a size is out of range.
    """
    found: dict[str, int] = {}
    for index, spec in enumerate(signature.inputs):
        for axis, dim in enumerate(spec.shape):
            if not isinstance(dim, str) or dim in found:
                continue
            taken = [io.inputs[index].shape[axis] for io in ios]
            fixed = sorted(size for size in taken if isinstance(size, int))
            if dim == signature.batch_dim:
                found[dim] = batch
            else:
                ends, pads = signature.dims[dim], spec.name in padded
                found[dim] = _choose_size(dim, ends, given, fixed, pads)
    return found


def _choose_size(
    name: str, ends: tuple[int, int], given: Mapping[str, int], fixed: Sequence[int], padded: bool
) -> int:
    low, high = ends
    if fixed and not padded:
        usual = max((size for size in fixed if size <= _DEFAULT_MAX_SIZE), default=fixed[0])
        wanted, allowed = f"one of {list(fixed)}", given.get(name, usual) in fixed
    else:
        high = min([high, *fixed[-1:]])
        usual = max(low, min(high, _DEFAULT_MAX_SIZE))
        wanted, allowed = f"{low} to {high}", low <= given.get(name, usual) <= high
    size = given.get(name, usual)
    if not allowed:
        raise MeasureError(
            "EDGE-MEASURE-003",
            f"dimension {name!r}",
            wanted=wanted,
            got=str(size),
            hint=f"give the request a size for {name!r} in dims",
        )
    return size


def sizes_in(tensors: Mapping[str, np.ndarray], signature: Signature) -> dict[str, int]:
    """The sizes that given tensors have in the dynamic dimensions."""
    return {
        dim: tensors[spec.name].shape[axis]
        for spec in signature.inputs
        for axis, dim in enumerate(spec.shape)
        if isinstance(dim, str)
    }


def padded_sizes(
    ios: Sequence[IO], signature: Signature, dims: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that dimensions are padded to, where the file is fixed to larger ones."""
    found: dict[str, int] = {}
    for index, spec in enumerate(signature.inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str) and dim != signature.batch_dim:
                taken = [io.inputs[index].shape[axis] for io in ios]
                holding = [s for s in taken if isinstance(s, int) and s >= dims[dim]]
                if holding and min(holding) > dims[dim]:
                    found[dim] = min(holding)
    return found


def seeded_tensors(
    signature: Signature, dims: Mapping[str, int], seed: int, masks: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Tensors of the right shapes: standard normal floats, whole-range bytes, and integers 0 and 1.

    Args:
        signature: The source's.
        dims: Sizes of the dynamic dimensions.
        seed: The same seed gives the same tensors.
        masks: Inputs that say which positions count: all ones, as zeros would make NaN and save
            work.

    Raises:
        MeasureError: EDGE-MEASURE-004, a dtype that no numbers can be drawn for.
    """
    rng = np.random.default_rng(seed)
    feed = {}
    for spec in signature.inputs:
        shape = tuple(dims[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        drawn = _draw(rng, spec, shape)
        feed[spec.name] = np.ones_like(drawn) if spec.name in masks else drawn
    return feed


def _draw(rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    if spec.dtype in ("string", "bfloat16"):
        raise MeasureError(
            "EDGE-MEASURE-004",
            f"input {spec.name!r}",
            wanted="numbers that numpy can hold",
            got=spec.dtype,
            hint="give a sample (an .npz of named tensors, or a raw input)",
        )
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape, np.float32).astype(dtype)
    if spec.dtype in _WHOLE_RANGE:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.integers(0, 2, shape).astype(dtype)


def named_tensors(path: Path, signature: Signature, batch: int) -> dict[str, np.ndarray]:
    """Read an ``.npz`` of the source's inputs by name; rows are repeated to fill the batch.

    Raises:
        MeasureError: EDGE-MEASURE-005, the file cannot be read or holds other tensors.
    """
    arrays = _load(path)
    wanted = {spec.name: spec for spec in signature.inputs}
    if set(arrays) != set(wanted):
        raise sample_error(path, f"tensors {sorted(wanted)}", str(sorted(arrays)))
    return {name: _fit(path, spec, arrays[name], batch) for name, spec in wanted.items()}


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path):  # numpy would also take a bare .npy or try to unpickle
            pass
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise sample_error(path, "an .npz of named tensors", str(error)) from error


def _fit(path: Path, spec: TensorSpec, array: np.ndarray, batch: int) -> np.ndarray:
    if array.ndim != len(spec.shape):
        raise sample_error(path, f"{spec.name!r} of {len(spec.shape)} axes", f"{array.ndim}")
    if spec.shape and array.shape[0] and (spec.shape[0] == batch or isinstance(spec.shape[0], str)):
        array = np.take(array, np.arange(batch) % array.shape[0], axis=0)
    try:
        return np.ascontiguousarray(array.astype(spec.dtype, casting="same_kind", copy=False))
    except TypeError as error:
        raise sample_error(path, f"{spec.name!r} as {spec.dtype}", str(array.dtype)) from error


def sample_error(path: Path, wanted: str, got: str) -> MeasureError:
    """The error for a sample that does not fit the model (EDGE-MEASURE-005)."""
    return MeasureError(
        "EDGE-MEASURE-005",
        f"sample {path.name}",
        wanted=wanted,
        got=got,
        hint="give a raw input that the model's processing takes, or an .npz of its named inputs",
    )
