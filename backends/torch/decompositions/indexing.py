"""Operators along an axis that formats lack: order and running values, writes and searches.

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

from edgeserve.backends.torch.decompositions.scatter import vector_along

_ATEN = torch.ops.aten


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    found = (each.narrow(dim, k - 1, 1) for each in torch.sort(x, dim))
    values, places = found if keepdim else (each.squeeze(dim) for each in found)
    return values.contiguous(), places.contiguous()  # as the operator's are: a view may follow


def _prefixes(x: Tensor, dim: int, filler: float | None = None) -> tuple[Tensor, Tensor]:
    """[before, behind, n, n]: for each element along an axis all up to it, then the filler.

    Axes before it, and those behind it, are one: formats take few.

    Args:
        x: The tensor.
        dim: The axis.
        filler: None: the first element, which each prefix holds, so that no maximum changes.

    Returns:
        The prefixes, and [n, n] which of their elements are no filler.
    """
    rows = _around(x, dim).transpose(1, 2)
    order = torch.arange(rows.shape[-1], device=x.device)
    seen = order.unsqueeze(1) >= order
    wide = rows.unsqueeze(-2)
    other = rows[..., :1].unsqueeze(-2) if filler is None else torch.full_like(wide, filler)
    return torch.where(seen, wide, other), seen


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
    return _back(torch.prod(_prefixes(given, dim, 1.0)[0], -1), x)


def _running(reduce: Callable[..., Tensor]) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """The largest (smallest) so far, and where it was last."""

    def rule(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        parts, seen = _prefixes(x, dim)
        best = reduce(parts, -1)
        order = torch.arange(parts.shape[-1], device=x.device)
        last = torch.logical_and(parts == best.unsqueeze(-1), seen)
        places = torch.where(last, order, torch.zeros_like(order)).amax(-1)
        return _back(best, x), _back(places, x)

    return rule


#: Rules by operator.
ORDERING_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.cummax.default: _running(torch.amax),
    _ATEN.cummin.default: _running(torch.amin),
    _ATEN.cumprod.default: _cumprod,
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.logcumsumexp.default: lambda x, dim: _back(
        torch.logsumexp(_prefixes(x, dim, -3e38)[0], -1), x
    ),
    # Of two in the middle the lower one.
    _ATEN.median.default: lambda x: _kthvalue(x.reshape(-1), (x.numel() + 1) // 2, 0)[0],
    _ATEN.median.dim: lambda x, dim, keepdim=False: _kthvalue(
        x, (x.shape[dim] + 1) // 2, dim, keepdim
    ),
}


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if not x.dim():
        return NotImplemented
    dim %= x.dim()
    places = torch.arange(x.shape[dim], device=x.device)
    hit = (places.unsqueeze(1) == index.reshape(1, -1)).any(1)
    filler = value.to(x.dtype) if isinstance(value, Tensor) else torch.full_like(x, value)
    return torch.where(vector_along(hit, x.dim(), dim), filler, x)


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
    return torch.where(vector_along(last > 0, x.dim(), dim), taken, x)


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


#: What writes to places, or looks for them, by operator.
INDEXING_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.bucketize.Tensor: lambda x, steps, **how: _searchsorted(steps, x, **how),
    _ATEN.index_copy.default: _index_copy,
    _ATEN.index_fill.int_Scalar: _index_fill,
    _ATEN.index_fill.int_Tensor: _index_fill,
    _ATEN.searchsorted.Tensor: _searchsorted,
}
