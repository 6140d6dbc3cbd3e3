"""Operators that look along an axis, for formats that lack them: by sorting, or by a triangle.

What runs along an axis (the largest so far) is computed from every element and all before it: a
triangle of n by n, which is what short axes allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["ORDER_RULES"]

_ATEN = torch.ops.aten


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Of two in the middle the lower one."""
    return _kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _before(x: Tensor, dim: int, filler: float) -> Tensor:
    """[..., n, n]: for each element all up to it, and the filler behind it; the axis goes last."""
    last = x.movedim(dim, -1)
    order = torch.arange(last.shape[-1], device=x.device)
    seen = order.unsqueeze(1) >= order
    return torch.where(seen, last.unsqueeze(-2), torch.full_like(last.unsqueeze(-2), filler))


def _cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    given = x if dtype is None else x.to(dtype)
    return torch.prod(_before(given, dim, 1.0), -1).movedim(-1, dim)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return torch.logsumexp(_before(x, dim, -3e38), -1).movedim(-1, dim)


def _running(sign: int) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """The largest (smallest) so far, and where it was last."""

    def rule(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        parts = _before(x if sign > 0 else -x, dim, -3e38)
        best = parts.amax(-1)
        order = torch.arange(x.shape[dim], device=x.device)
        places = torch.where(parts == best.unsqueeze(-1), order, torch.zeros_like(order)).amax(-1)
        values = best if sign > 0 else -best
        return values.movedim(-1, dim), places.movedim(-1, dim)

    return rule


#: Rules by operator.
ORDER_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.cummax.default: _running(1),
    _ATEN.cummin.default: _running(-1),
    _ATEN.cumprod.default: _cumprod,
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.logcumsumexp.default: _logcumsumexp,
    _ATEN.median.dim: _median,
}
