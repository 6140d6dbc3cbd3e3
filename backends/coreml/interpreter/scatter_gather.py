"""Reading and writing at indices.

A negative index counts from the end: by contract up to iOS 16, and as every reader of Core ML
programs does it later as well, where the contract calls it undefined. An index outside the tensor
is an error here whether or not the program asks for validation: the device may give anything then,
and an answer would prove nothing.

Indices that repeat are written in their order: the last one wins, sums add all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.plan_nodes import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Bool, Int, integer, truth


def _inside(indices: Tensor, size: int, strict: Bool = False) -> Tensor:
    """Indices as int64 from 0 up, checked; with ``strict`` negative ones are refused."""
    wide = indices.to(torch.int64)
    if not wide.numel():
        return wide
    low, high = (int(bound) for bound in torch.aminmax(wide))
    if high >= size or low < (0 if truth(strict) else -size):
        raise IndexError(f"indices from {low} to {high} on an axis of {size}")
    return torch.where(wide < 0, wide + size, wide) if low < 0 else wide


@kernel("gather")
def gather(
    x: Tensor, indices: Tensor, axis: Int = 0, batch_dims: Int = 0, validate_indices: Bool = False
) -> Tensor:
    """Whole slices of ``x`` along an axis; the axes of ``indices`` take the axis's place.

    The first ``batch_dims`` axes of both run together.
    """
    at, batch = integer(axis) % x.dim(), integer(batch_dims)
    index = _inside(indices, x.shape[at], validate_indices)
    check_shape([*x.shape[:at], *index.shape[batch:], *x.shape[at + 1 :]], "gather")
    if not batch:
        found = x.index_select(at, index.reshape(-1))
        return found.reshape((*x.shape[:at], *index.shape, *x.shape[at + 1 :]))
    grid = _batch_grid(x.shape[:batch], index.dim())
    found = x.movedim(at, batch)[(*grid, index)]
    extra = index.dim() - batch  # stand behind the batch, and belong where the axis was
    between = at - batch
    order = [
        *range(batch),
        *range(batch + extra, batch + extra + between),
        *range(batch, batch + extra),
        *range(batch + extra + between, found.dim()),
    ]
    return found.permute(order)


@kernel("gather_along_axis")
def gather_along_axis(
    x: Tensor, indices: Tensor, axis: Int = 0, validate_indices: Bool = False
) -> Tensor:
    """Single elements along an axis, at an index for each place of the result."""
    at = integer(axis) % x.dim()
    return x.gather(at, _inside(indices, x.shape[at], validate_indices))


@kernel("gather_nd")
def gather_nd(
    x: Tensor, indices: Tensor, batch_dims: Int = 0, validate_indices: Bool = False
) -> Tensor:
    """Slices of ``x`` at tuples of indices: the last axis of ``indices`` is the tuple."""
    batch = integer(batch_dims)
    index = _tuple(indices, x.shape[batch:], validate_indices)
    check_shape([*indices.shape[:-1], *x.shape[batch + len(index) :]], "gather_nd")
    grid = _batch_grid(x.shape[:batch], indices.dim() - 1)
    return x[(*grid, *index)]


@kernel("scatter")
def scatter(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: Int = 0,
    mode: str = "add",
    validate_indices: Bool = False,
) -> Tensor:
    """A copy of ``data`` with whole slices along an axis combined with ``updates``."""
    at = integer(axis) % data.dim()
    index = _inside(indices, data.shape[at], validate_indices).numpy()
    return _written(data, (*(slice(None),) * at, index), updates, mode)


@kernel("scatter_along_axis")
def scatter_along_axis(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: Int = 0,
    mode: str = "add",
    validate_indices: Bool = False,
) -> Tensor:
    """A copy of ``data`` with single elements along an axis combined with ``updates``."""
    at = integer(axis) % data.dim()
    index = _inside(indices, data.shape[at], validate_indices).numpy()
    places = list(np.ogrid[tuple(slice(0, size) for size in index.shape)])
    places[at] = index
    return _written(data, tuple(places), updates, mode)


@kernel("scatter_nd")
def scatter_nd(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    mode: str = "add",
    validate_indices: Bool = False,
) -> Tensor:
    """A copy of ``data`` with slices at tuples of indices combined with ``updates``."""
    index = _tuple(indices, data.shape, validate_indices)
    return _written(data, tuple(part.numpy() for part in index), updates, mode)


def _tuple(indices: Tensor, sizes: Any, strict: Bool) -> list[Tensor]:
    """The parts of index tuples, each checked against the size of its axis."""
    depth = indices.shape[-1]
    return [_inside(indices[..., i], sizes[i], strict) for i in range(depth)]


def _batch_grid(sizes: Any, rank: int) -> list[Tensor]:
    """For each batch axis its own places, to be broadcast against indices of that rank."""
    return [
        torch.arange(size).reshape([-1 if i == axis else 1 for i in range(rank)])
        for axis, size in enumerate(sizes)
    ]


#: numpy's functions whose ``at`` treats repeated indices one after another.
_MODES: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


def _written(data: Tensor, places: tuple[Any, ...], updates: Tensor, mode: str) -> Tensor:
    """A copy of ``data`` with ``updates`` combined in at ``places``."""
    made = data.contiguous().clone()
    view = made.numpy()  # shares the memory
    if mode == "update":
        view[places] = updates.numpy()
    else:
        whole = mode == "div" and not data.is_floating_point()
        combine = np.floor_divide if whole else _MODES[mode]
        combine.at(view, places, updates.numpy())
    return made
