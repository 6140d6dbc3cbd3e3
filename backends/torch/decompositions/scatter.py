"""Scatters: operators that write, add or reduce values at indexed positions.

Two tables. `PLACING_RULES` express one scatter by another that every converter translates, or that
has a rule here: ``index_reduce`` by ``scatter_reduce``, a mean by two sums, ``put`` by
``index_put``. `SCATTER_RULES` are for formats whose scatters cannot reduce: every position is
compared with every index, which takes positions times indices comparisons. Which element goes where
is then a choice between values, and no product with zero hides an infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_ATEN = torch.ops.aten

#: The value that does not change a reduction, for floats and for integers.
_NEUTRAL = {"sum": (0.0, 0), "prod": (1.0, 1), "amax": (-3e38, -(2**31)), "amin": (3e38, 2**31 - 1)}

_COMBINE = {"sum": torch.add, "prod": torch.mul, "amax": torch.maximum, "amin": torch.minimum}


def vector_along(values: Tensor, rank: int, dim: int) -> Tensor:
    """A vector along one of ``rank`` axes, of size 1 along the others."""
    shape = [1] * rank
    shape[dim] = values.numel()
    return values.reshape(shape)


def _is_number(x: Tensor) -> bool:
    return x.dtype is not torch.bool and not x.is_complex()


def _sources(index: Tensor, src: Tensor) -> Tensor:
    """The elements of a source that have an index: a source may be larger than its index."""
    sizes = [size for size, have in zip(index.shape, src.shape, strict=True) if size != have]
    return src[tuple(slice(0, size) for size in index.shape)] if sizes else src


def _candidates(x: Tensor, dim: int, index: Tensor, src: Tensor, filler: float) -> Tensor:
    """For each place along ``dim`` and each index: the source where it goes there, else filler.

    The indices' axis comes right behind ``dim``.
    """
    places = vector_along(torch.arange(x.shape[dim], device=x.device), index.dim() + 1, dim)
    there = index.unsqueeze(dim) == places
    values = src.unsqueeze(dim)
    return torch.where(there, values, torch.full_like(values, filler))


def _padded(part: Tensor, x: Tensor, filler: float) -> Tensor:
    """Filled up to the size of ``x``: indices may cover less of the other axes."""
    widths = [[0, whole - have] for have, whole in zip(part.shape, x.shape, strict=True)]
    flat = [width for pair in reversed(widths) for width in pair]
    return torch.constant_pad_nd(part, flat, filler) if any(flat) else part


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Any:
    """By comparison of each place with each index."""
    if not _is_number(x):
        return NotImplemented
    if not x.dim():
        row, given = index.reshape(1), src.reshape(1)
        return _scatter_reduce(x.reshape(1), 0, row, given, reduce, include_self).reshape([])
    if reduce == "mean":
        return _mean_by_sums(_scatter_reduce, x, dim, index, src, include_self)
    neutral = _NEUTRAL[reduce][not x.is_floating_point()]
    if not include_self:
        x = _cleared(x, dim, index, neutral)
    dim %= x.dim()
    candidates = _candidates(x, dim, index, _sources(index, src), neutral)
    reduced = getattr(candidates, reduce)(dim + 1).to(x.dtype)
    combine: Any = _COMBINE[reduce]
    return combine(x, _padded(reduced, x, neutral))


def _cleared(x: Tensor, dim: int, index: Tensor, filler: float) -> Tensor:
    """``x`` with a filler where a source goes."""
    zeros, ones = torch.zeros_like(x), torch.ones_like(index, dtype=x.dtype)
    hit = _scatter_reduce(zeros, dim, index, ones, "amax") > 0
    return torch.where(hit, torch.full_like(x, filler), x)


def _mean_by_sums(
    scatter: Callable[..., Any], x: Tensor, dim: int, index: Tensor, src: Tensor, own: bool
) -> Tensor:
    """The sum over the count, as PyTorch computes it; integers are rounded down.

    Args:
        scatter: ``scatter_reduce`` for sums.
        x: What is scattered into.
        dim: Along which axis.
        index: Where each source goes.
        src: The sources.
        own: Whether elements of ``x`` count as well.
    """
    start = torch.ones_like(x) if own else torch.zeros_like(x)
    count = scatter(start, dim, index, torch.ones_like(index, dtype=x.dtype), "sum")
    total = scatter(x, dim, index, src, "sum", include_self=own)
    rounding = None if x.is_floating_point() else "floor"
    return torch.div(total, count.clamp(min=1), rounding_mode=rounding)


def _along(index: Tensor, source: Tensor, dim: int) -> Tensor:
    """An index of one axis as one for every element of a source."""
    sizes = list(source.shape)
    sizes[dim] = index.numel()
    return vector_along(index, source.dim(), dim).expand(sizes)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    if not _is_number(x) or not x.dim():
        return NotImplemented
    scaled = source if alpha == 1 else source * alpha
    return _scatter_reduce(x, dim % x.dim(), _along(index, source, dim), scaled, "sum")


def _index_put_leading(
    x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Any:
    """With the indexed axes first, the only order that every converter takes."""
    split = _leading(x, indices, values)
    if split is None or split.axes == split.front:
        return NotImplemented
    made = torch.index_put(split.moved, split.indices, split.values, accumulate)
    return made.movedim(split.front, split.axes)


def _index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Any:
    """Values that add up go to one axis, which stands for all that are indexed."""
    if not accumulate:
        return _index_put_leading(x, indices, values)
    split = _leading(x, indices, values)
    if split is None:
        return NotImplemented
    shape = split.moved.shape
    sizes, rest = list(shape[: len(split.axes)]), list(shape[len(split.axes) :])
    count = split.values.dim() - len(rest)
    place = _flat_index(split.indices, sizes).expand(split.values.shape[:count]).reshape(-1)
    flat = split.moved.reshape(math.prod(sizes), *rest)
    made = flat.index_add(0, place, split.values.reshape(-1, *rest))
    return made.reshape(shape).movedim(split.front, split.axes)


class _Leading(NamedTuple):
    """A tensor with the indexed axes first: which they were, indices, and values in that order."""

    moved: Tensor
    axes: list[int]
    indices: list[Any]
    values: Tensor

    @property
    def front(self) -> list[int]:
        return list(range(len(self.axes)))


def _leading(x: Tensor, indices: Sequence[Any], values: Tensor) -> _Leading | None:
    """None for masks, whose true places are counted when the model runs, and truth values."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    found = [indices[axis] for axis in axes]
    if any(each.dtype in (torch.bool, torch.uint8) for each in found) or not _is_number(x):
        return None
    moved = x.movedim(axes, list(range(len(axes))))
    shape = list(torch.broadcast_shapes(*(each.shape for each in found)))  # type: ignore[no-untyped-call]
    return _Leading(
        moved, axes, found, _values_by_index(values, moved.shape[len(axes) :], shape, axes)
    )


def _values_by_index(
    values: Tensor, rest: Sequence[int], shape: list[int], axes: list[int]
) -> Tensor:
    """Values for ``x[indices]``, with the indices' axes first: ``[*shape, *rest]``.

    Those stand where the indexed axes stood, if these are neighbours.
    """
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    whole = values.expand([*rest[:first], *shape, *rest[first:]])
    here = list(range(first, first + len(shape)))
    return whole.movedim(here, list(range(len(shape)))) if first and shape else whole


def _flat_index(indices: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The row-major position of indices of some axes, counted from the end where negative."""
    place: Any = 0
    for index, size in zip(indices, sizes, strict=True):
        below = torch.clamp(-index, 0, 1)  # LiteRT cannot compare integers made of truth values
        place = place * size + index + size * below
    return place  # type: ignore[no-any-return]


#: Scatters by comparison, by operator.
SCATTER_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.index_add.default: _index_add,
    _ATEN.index_put.default: _index_put,
    _ATEN.scatter_add.default: lambda x, dim, index, src: _scatter_reduce(
        x, dim, index, src, "sum"
    ),
    _ATEN.scatter_reduce.two: _scatter_reduce,
}


def _narrowed_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Any:
    """A mean by sums, and a source of its index's size; other scatters stay."""
    given = _sources(index, src)
    if reduce == "mean":
        return _mean_by_sums(torch.scatter_reduce, x, dim, index, given, include_self)
    if given is src:
        return NotImplemented
    return torch.scatter_reduce(x, dim, index, given, reduce, include_self=include_self)


def _narrowed(operator: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        given = _sources(index, src)
        return NotImplemented if given is src else operator(x, dim, index, given)

    return rule


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    if not x.dim():
        return NotImplemented
    every = _along(index, source, dim % x.dim())
    return torch.scatter_reduce(x, dim, every, source, reduce, include_self=include_self)


_MODES = {"add": "sum", "multiply": "prod"}


def _scatter_by_mode(x: Tensor, dim: int, index: Tensor, src: Any, *, reduce: str) -> Tensor:
    if not isinstance(src, Tensor):
        src = torch.full_like(index, src, dtype=x.dtype)
    return torch.scatter_reduce(x, dim, index, src, _MODES[reduce])


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    places: list[Any] = [index.reshape(-1)]
    flat = torch.index_put(x.reshape(-1), places, source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    """The source's elements in order: a true place takes the one that its count of trues names."""
    if not source.numel():
        return NotImplemented
    shape: Any = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]
    order = mask.expand(shape).reshape(-1).to(torch.int32).cumsum(0) - 1
    taken = source.reshape(-1).index_select(0, order.clamp(0, source.numel() - 1))
    return torch.where(mask, taken.reshape(shape), x)


def _diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """By the places of the diagonal in the two axes, laid out as one."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    places = (torch.arange(src.shape[-1]) + max(0, -offset)) * (columns + 1) + offset
    flat = moved.reshape(*moved.shape[:-2], rows * columns)
    made = flat.index_copy(flat.dim() - 1, places, src)
    return made.reshape(moved.shape).movedim((-2, -1), (dim1, dim2))


#: Scatters by other scatters, by operator; `NotImplemented` leaves it as it is.
PLACING_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.diagonal_scatter.default: _diagonal_scatter,
    _ATEN.index_put.default: _index_put_leading,
    _ATEN.index_reduce.default: _index_reduce,
    _ATEN.masked_scatter.default: _masked_scatter,
    _ATEN.put.default: _put,
    _ATEN.scatter.reduce: _scatter_by_mode,
    _ATEN.scatter.src: _narrowed(torch.scatter),
    _ATEN.scatter.value_reduce: _scatter_by_mode,
    _ATEN.scatter_add.default: _narrowed(torch.scatter_add),
    _ATEN.scatter_reduce.two: _narrowed_reduce,
}


def on_int32(
    operator: Any, place: int, dtype: torch.dtype, rules: Mapping[Any, Callable[..., Any]]
) -> Callable[..., Any]:
    """A rule that scatters a dtype as integers of 32 bits, of which some formats have no scatter.

    Args:
        operator: Of ATen.
        place: Which argument after the first is scattered.
        dtype: Truth values, or integers of 64 bits in a format that holds 32.
        rules: For other dtypes.
    """
    otherwise: Callable[..., Any] = rules.get(operator, lambda *_: NotImplemented)

    def rule(x: Tensor, *rest: Any) -> Any:
        if x.dtype is not dtype:
            return otherwise(x, *rest)
        given = list(rest)
        source = given[place]
        given[place] = source.to(torch.int32) if isinstance(source, Tensor) else int(source)
        return operator(x.to(torch.int32), *given).to(dtype)

    return rule
