"""Determinants and inverses of matrices up to 4 by 4, and bags of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten

#: Rows and columns that are still written out; larger ones need pivoting.
_MOST = 4


def _minor(x: Tensor, rows: tuple[int, ...], columns: tuple[int, ...]) -> Tensor:
    """The determinant of some rows and columns, along the first of them."""
    if len(rows) == 1:
        return x[..., rows[0], columns[0]]
    made: Tensor | None = None
    for place, column in enumerate(columns):
        part = x[..., rows[0], column] * _minor(
            x, rows[1:], (*columns[:place], *columns[place + 1 :])
        )
        made = part if made is None else (made - part if place % 2 else made + part)
    assert made is not None  # a matrix has columns
    return made


def _fits(x: Tensor) -> bool:
    return x.is_floating_point() and x.shape[-1] in range(1, _MOST + 1)


def _det(x: Tensor) -> Any:
    if not _fits(x):
        return NotImplemented
    every = tuple(range(x.shape[-1]))
    return _minor(x, every, every)


def _inverse(x: Tensor) -> Any:
    """The adjugate over the determinant."""
    if not _fits(x):
        return NotImplemented
    every = tuple(range(x.shape[-1]))
    if len(every) == 1:
        return 1 / x
    rows = []
    for i in every:
        columns = tuple(each for each in every if each != i)
        row = []
        for j in every:
            part = _minor(x, tuple(each for each in every if each != j), columns)
            row.append(-part if (i + j) % 2 else part)
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2) / _minor(x, every, every).unsqueeze(-1).unsqueeze(-1)


def _inverse_ex(x: Tensor, *, check_errors: bool = False) -> Any:
    made = _inverse(x)
    if made is NotImplemented:
        return NotImplemented
    return made, torch.zeros(x.shape[:-2], dtype=torch.int32)


def _bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Which index lies in which bag is a matrix of truth values; sums are a product with it."""
    count = offsets.shape[0] - int(include_last_offset)
    if indices.dim() != 1 or not count or not indices.shape[0]:
        return NotImplemented
    starts = offsets[:count]
    places = torch.arange(indices.shape[0])
    bag = (places.unsqueeze(1) >= starts).to(torch.int64).sum(1) - 1
    member = bag == torch.arange(count).unsqueeze(1)
    if padding_idx is not None and padding_idx >= 0:
        member = torch.logical_and(member, indices != padding_idx)
    found = weight.index_select(0, indices)
    sizes = member.to(torch.int64).sum(1)
    return _pooled(member, found, sizes, mode, per_sample_weights), bag, sizes, starts


def _pooled(
    member: Tensor, found: Tensor, sizes: Tensor, mode: int, weights: Tensor | None
) -> Tensor:
    """[bags, features]: the sum (0), the mean (1) or the largest (2); of an empty bag 0."""
    if mode == 2:
        filler = torch.full_like(found, -3e38)
        best = torch.where(member.unsqueeze(-1), found, filler).amax(1)
        return torch.where((sizes > 0).unsqueeze(-1), best, torch.zeros_like(best))
    found = found if weights is None else found * weights.unsqueeze(-1)
    total = member.to(found.dtype) @ found
    return total if mode == 0 else total / torch.clamp(sizes, min=1).to(found.dtype).unsqueeze(-1)


#: Rules by operator; `NotImplemented` leaves it as it is.
LINALG_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.linalg_det.default: _det,
    _ATEN.linalg_inv.default: _inverse,
    _ATEN.linalg_inv_ex.default: _inverse_ex,
    _ATEN.embedding_bag.default: _bag,
    _ATEN.embedding_bag.padding_idx: _bag,
    _ATEN._embedding_bag.default: _bag,
    _ATEN._embedding_bag_forward_only.default: _bag,
}
