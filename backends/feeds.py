"""The check of what is fed to a session, precomputed so that it costs a few microseconds.

A runtime fed by the wrong name, dtype or shape answers with its own words, or with numbers. Here
every feed is compared with what the file takes before the runtime sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from edgeserve.errors import BackendError
from edgeserve.types.tensors import IO, DType, TensorSpec

__all__ = ["FeedCheck", "numpy_dtype"]

# What numpy calls a dtype, where that differs from our word.
_SPECIAL: dict[str, type] = {"bool": np.bool_, "string": np.object_}


def numpy_dtype(dtype: DType, tensor: str) -> np.dtype[np.generic]:
    """The numpy dtype of a `DType`, native byte order ("string" is object).

    Raises:
        BackendError: EDGE-BACKEND-017, for bfloat16, which numpy does not have.
    """
    if dtype == "bfloat16":
        raise BackendError(
            "EDGE-BACKEND-017",
            f"tensor {tensor!r}",
            wanted="a dtype that numpy has",
            got="bfloat16",
            hint="cast this input or output to float32 inside the model",
        )
    return np.dtype(_SPECIAL.get(dtype, dtype))


class _Row(NamedTuple):
    """One input: fixed axes carry a size, named axes the number of a slot shared by all inputs."""

    name: str
    dtype: np.dtype[np.generic]
    rank: int
    fixed: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, int], ...]


class FeedCheck:
    """Compares feeds with an `IO`: names, dtypes, ranks, fixed sizes, one size for one name."""

    def __init__(self, io: IO) -> None:
        self._io = io
        names = {dim for spec in io.inputs for dim in spec.shape if isinstance(dim, str)}
        self._slots = {name: slot for slot, name in enumerate(sorted(names))}
        self._rows = tuple(self._row(spec) for spec in io.inputs)

    def _row(self, spec: TensorSpec) -> _Row:
        axes = list(enumerate(spec.shape))
        return _Row(
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
        return BackendError(
            "EDGE-BACKEND-008",
            "inputs",
            wanted=f"{wanted}",
            got=f"{list(feed)}",
            hint="feed one array for each input, by these names",
        )

    def _wrong_dtype(self, name: str, dtype: np.dtype[np.generic], got: object) -> BackendError:
        found = str(got.dtype) if isinstance(got, np.ndarray) else type(got).__name__
        return BackendError(
            "EDGE-BACKEND-009",
            f"input {name!r}",
            wanted=f"a {dtype} array",
            got=found,
            hint=f"convert it: numpy.asarray(x, dtype={str(dtype)!r})",
        )

    def _wrong_shape(self, name: str, got: tuple[int, ...]) -> BackendError:
        spec = next(spec for spec in self._io.inputs if spec.name == name)
        return BackendError(
            "EDGE-BACKEND-010",
            f"input {name!r}",
            wanted=f"shape {_show(spec.shape)}",
            got=f"shape {_show(got)}",
            hint="a word in the shape may be any size, a number may not",
        )

    def _unequal(self, name: str, axis: int, got: tuple[int, ...], size: int) -> BackendError:
        spec = next(spec for spec in self._io.inputs if spec.name == name)
        dim = spec.shape[axis]
        return BackendError(
            "EDGE-BACKEND-010",
            f"input {name!r}",
            got=f"shape {_show(got)}",
            wanted=f"{size} for {dim!r} (axis {axis}), as in the other inputs",
            hint=f"give every input the same size of {dim!r}",
        )


def _show(shape: tuple[int | str, ...]) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"
