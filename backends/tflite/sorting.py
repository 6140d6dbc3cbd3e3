"""Sorting in the one form that LiteRT runs: the largest of the last axis.

``TOPK_V2`` is the only kernel that orders values. The converter writes anything else as an
operation that it names and no engine has. On equal values it takes the first, so that a sort made
of it is stable. The kernel is only found where the places are asked for: values are looked up by
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["SORTING"]

_ATEN = torch.ops.aten
_Pair = tuple[Tensor, Tensor]


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if dim == x.dim() - 1 and largest:
        return NotImplemented  # as it is to be: `_ordered` counts that axis from the front
    return _ordered(x, k, dim, largest)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return _ordered(x, x.shape[dim], dim, descending) if x.dim() else NotImplemented


def _stable(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    return _sort(x, dim, descending)


def _argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return _ordered(x, x.shape[dim], dim, descending)[1]


def _ordered(x: Tensor, k: int, dim: int, largest: bool) -> _Pair:
    last = x.movedim(dim, -1) if x.dim() > 1 else x
    _, places = torch.topk(last if largest else -last, k, last.dim() - 1)
    values = torch.gather(last, -1, places)
    return values.movedim(-1, dim), places.movedim(-1, dim)


#: Rules by operator; `NotImplemented` leaves it as it is.
SORTING: dict[Any, Callable[..., Any]] = {
    _ATEN.argsort.default: _argsort,
    _ATEN.sort.default: _sort,
    _ATEN.sort.stable: _stable,
    _ATEN.topk.default: _topk,
}
