"""Operators along an axis that formats lack: order and running values, scatters and searches.

Order is found by sorting. What runs along an axis (the largest so far) is computed from every
element and all before it: a triangle of n by n, which is what short axes allow. To write to
positions, or to look for them, every position is compared with every index: as many comparisons
as positions times indices. Which element goes where is then a choice between values, and no
product with zero hides an infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _prefixes(x: Tensor, dim: int, filler: float) -> Tensor:
    """[before, behind, n, n]: for each element along an axis all up to it, then the filler.

    Axes before it, and those behind it, are one: formats take few.
    """
    rows = _around(x, dim).transpose(1, 2)
    order = torch.arange(rows.shape[-1], device=x.device)
    seen = order.unsqueeze(1) >= order
    return torch.where(seen, rows.unsqueeze(-2), torch.full_like(rows.unsqueeze(-2), filler))


def _around(x: Tensor, dim: int) -> Tensor:
    """[before, n, behind]: the axes before one, and those behind it, each as one axis."""
    dim %= max(x.dim(), 1)
    before, behind = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    return x.reshape(before, x.shape[dim] if x.dim() else 1, behind)


def _back(found: Tensor, x: Tensor) -> Tensor:
    """[before, behind, n] in the sizes of the tensor that it was found for.

    Contiguous, as the operator's own result is: a view of it may follow.
    """
    return found.transpose(1, 2).reshape(x.shape).contiguous()


def _cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    given = x if dtype is None else x.to(dtype)
    return _back(torch.prod(_prefixes(given, dim, 1.0), -1), x)


def _running(sign: int) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """The largest (smallest) so far, and where it was last."""

    def rule(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        parts = _prefixes(x if sign > 0 else -x, dim, -3e38)
        best = parts.amax(-1)
        order = torch.arange(parts.shape[-1], device=x.device)
        places = torch.where(parts == best.unsqueeze(-1), order, torch.zeros_like(order)).amax(-1)
        values = best if sign > 0 else -best
        return _back(values, x), _back(places, x)

    return rule


#: Rules by operator.
ORDERING_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.cummax.default: _running(1),
    _ATEN.cummin.default: _running(-1),
    _ATEN.cumprod.default: _cumprod,
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.logcumsumexp.default: lambda x, dim: _back(
        torch.logsumexp(_prefixes(x, dim, -3e38), -1), x
    ),
    # Of two in the middle the lower one.
    _ATEN.median.dim: lambda x, dim, keepdim=False: _kthvalue(
        x, (x.shape[dim] + 1) // 2, dim, keepdim
    ),
}


_FILLERS = {"sum": 0.0, "amax": -3e38, "amin": 3e38}


def _lying(values: Tensor, rank: int, dim: int) -> Tensor:
    """A vector along one of ``rank`` axes, of size 1 along the others."""
    shape = [1] * rank
    shape[dim] = values.numel()
    return values.reshape(shape)


def _spread(x: Tensor, dim: int, index: Tensor, src: Tensor, filler: float) -> Tensor:
    """For each place along ``dim`` and each index: the source where it goes there, else filler.

    The indices' axis comes right behind ``dim``.
    """
    places = _lying(torch.arange(x.shape[dim], device=x.device), index.dim() + 1, dim)
    there = index.unsqueeze(dim) == places
    values = src.unsqueeze(dim)
    return torch.where(there, values, torch.full_like(values, filler))


def _wide(part: Tensor, x: Tensor, filler: float) -> Tensor:
    """Filled up to the size of ``x``: indices may cover less of the other axes."""
    widths = [[0, whole - have] for have, whole in zip(part.shape, x.shape, strict=True)]
    flat = [width for pair in reversed(widths) for width in pair]
    return torch.constant_pad_nd(part, flat, filler) if any(flat) else part


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Any:
    if reduce not in _FILLERS or not x.is_floating_point() or not x.dim():
        return NotImplemented
    if not include_self:
        return _reduced_alone(x, dim, index, src, reduce)
    dim, filler = dim % x.dim(), _FILLERS[reduce]
    src = src[tuple(slice(0, size) for size in index.shape)]
    parts = _spread(x, dim, index, src, filler)
    combine: Any = {"sum": torch.add, "amax": torch.maximum, "amin": torch.minimum}[reduce]
    return combine(x, _wide(getattr(parts, reduce)(dim + 1), x, filler))


def _reduced_alone(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Any:
    """What the sources alone come to where there is one, ``x`` elsewhere."""
    zeros = torch.zeros_like(x)
    count = _scatter_reduce(zeros, dim, index, torch.ones_like(src), "sum")
    filler = zeros if reduce == "sum" else torch.full_like(x, _FILLERS[reduce])
    return torch.where(count > 0, _scatter_reduce(filler, dim, index, src, reduce), x)


def _along(index: Tensor, x: Tensor, dim: int) -> Tensor:
    """An index of one axis as one for every element of a source."""
    sizes = list(x.shape)
    sizes[dim] = index.numel()
    return _lying(index, x.dim(), dim).expand(sizes)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    if not x.is_floating_point() or not x.dim():
        return NotImplemented
    dim %= x.dim()
    return _scatter_reduce(x, dim, _along(index, x, dim), source * alpha, "sum")


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if not x.dim():
        return NotImplemented
    dim %= x.dim()
    places = torch.arange(x.shape[dim], device=x.device)
    hit = (places.unsqueeze(1) == index.reshape(1, -1)).any(1)
    filler = value.to(x.dtype) if isinstance(value, Tensor) else torch.full_like(x, value)
    return torch.where(_lying(hit, x.dim(), dim), filler, x)


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Of several sources for one place the last counts."""
    if not x.dim():
        return NotImplemented
    dim %= x.dim()
    places = torch.arange(x.shape[dim], device=x.device)
    order = torch.arange(index.numel(), device=x.device) + 1
    hit = places.unsqueeze(1) == index.reshape(1, -1)
    last = torch.where(hit, order, torch.zeros_like(order)).amax(1)
    taken = source.index_select(dim, torch.maximum(last - 1, torch.zeros_like(last)))
    return torch.where(_lying(last > 0, x.dim(), dim), taken, x)


def _searchsorted(
    steps: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """How many steps lie below, or not above; NaN lies above all."""
    if sorter is not None or (steps.dim() > 1 and steps.dim() != x.dim()):
        return NotImplemented
    wide = steps.unsqueeze(-2) if steps.dim() > 1 else steps
    after = right or side == "right"
    value = x.unsqueeze(-1)
    below = (wide <= value) if after else (wide < value)
    found = torch.logical_or(below, value != value).to(torch.int64).sum(-1)
    return found.to(torch.int32) if out_int32 else found


#: What adds up in places, by operator.
SCATTER_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.index_add.default: _index_add,
    _ATEN.scatter_add.default: lambda x, dim, index, src: _scatter_reduce(
        x, dim, index, src, "sum"
    ),
    _ATEN.scatter_reduce.two: _scatter_reduce,
}

#: What writes to places, or looks for them, by operator.
INDEXING_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.bucketize.Tensor: lambda x, steps, **how: _searchsorted(steps, x, **how),
    _ATEN.index_copy.default: _index_copy,
    _ATEN.index_fill.int_Scalar: _index_fill,
    _ATEN.index_fill.int_Tensor: _index_fill,
    _ATEN.searchsorted.Tensor: _searchsorted,
}
