"""Corrections for uses of operators that coremltools knows but translates wrongly.

A rule that does not apply leaves the operator as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.torch.decompositions.bitwise import BITWISE_RULES, SHIFT_RULES
from edgeserve.backends.torch.decompositions.indexing import INDEXING_RULES
from edgeserve.backends.torch.decompositions.linalg_small import LINALG_RULES
from edgeserve.backends.torch.decompositions.scatter import PLACING_RULES, SCATTER_RULES, on_int32
from edgeserve.backends.torch.decompositions.table import RULES

_ATEN = torch.ops.aten


def _pad(x: Tensor, pad: list[int], value: float = 0.0) -> Any:
    """Negative padding crops; integers are put side by side: coremltools pads them as floats."""
    if min(pad, default=0) >= 0:
        return NotImplemented if x.is_floating_point() else _pad_whole(x, pad, int(value))
    for place, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - place
        start, end = max(0, -before), x.shape[axis] - max(0, -behind)
        x = x.narrow(axis, start, end - start)
    rest = [max(0, width) for width in pad]
    return torch.constant_pad_nd(x, rest, value) if any(rest) else x.clone()


def _pad_whole(x: Tensor, pad: list[int], value: int) -> Tensor:
    for place, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - place
        sizes = [[*x.shape[:axis], width, *x.shape[axis + 1 :]] for width in (before, behind)]
        first, last = (torch.full(size, value, dtype=x.dtype) for size in sizes)
        parts = [*([first] if before else []), x, *([last] if behind else [])]
        x = torch.cat(parts, axis)
    return x


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A gather in the two axes, flattened into one."""
    flat = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = flat.shape[-2:]
    first = max(0, -offset)
    count = max(0, min(rows - first, columns - max(0, offset)))
    places = (torch.arange(count) + first) * (columns + 1) + offset
    return flat.reshape(*flat.shape[:-2], rows * columns).index_select(-1, places)


def _lerp(x: Tensor, y: Tensor, weight: Any) -> Any:
    """From the nearer end, as PyTorch does; it tests a number that coremltools cannot broadcast."""
    return x + weight * (y - x) if abs(weight) < 0.5 else y - (y - x) * (1 - weight)


def _full_like(x: Tensor, value: Any, *, dtype: Any = None, **memory: Any) -> Any:
    """With the tensor's dtype; coremltools takes the number's, and 0 becomes an integer."""
    wanted = x.dtype if dtype is None else dtype
    if not wanted.is_floating_point or type(value) is float:
        return NotImplemented
    return torch.full_like(x, float(value), dtype=wanted)


def _clamp(x: Tensor, min: Any = None, max: Any = None) -> Any:
    """Integers between integers; coremltools takes them through float32."""
    if x.is_floating_point():
        return NotImplemented
    for choose, limit in ((torch.maximum, min), (torch.minimum, max)):
        if limit is not None:
            wide = limit if isinstance(limit, Tensor) else torch.full_like(x, limit)
            x = choose(x, wide)
    return x


def _cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Any:
    """Of axes counted from the end coremltools takes the last one only."""
    if dim >= 0 or not x.dim():
        return NotImplemented
    return torch.cumsum(x, dim % x.dim(), dtype=dtype)


def _group_norm(x: Tensor, groups: int, *rest: Any, **named: Any) -> Any:
    """With the groups' axis coremltools' own form of five axes would have six."""
    if x.dim() < 5:
        return NotImplemented
    return torch.group_norm(x.flatten(3), groups, *rest, **named).reshape(x.shape)


def _in_four_axes(shuffle: Callable[..., Tensor]) -> Callable[..., Any]:
    """A rule that merges the axes before the last three into one, which coremltools wants."""

    def rule(x: Tensor, factor: int) -> Any:
        if x.dim() == 4:
            return NotImplemented
        made = shuffle(x.reshape(-1, *x.shape[-3:]), factor)
        return made.reshape(*x.shape[:-3], *made.shape[1:])

    return rule


#: Rules by operator; `NotImplemented` leaves it as it is.
CORRECTIONS: dict[Any, Callable[..., Any]] = {
    **BITWISE_RULES,
    **INDEXING_RULES,
    **PLACING_RULES,
    **SHIFT_RULES,
    **LINALG_RULES,
    _ATEN.atan2.default: RULES[_ATEN.atan2.default],  # theirs is 0 on the negative axis
    _ATEN.bilinear.default: RULES[_ATEN.bilinear.default],
    _ATEN.clamp.default: _clamp,
    _ATEN.clamp.Tensor: _clamp,
    _ATEN.constant_pad_nd.default: _pad,
    _ATEN.cumsum.default: _cumsum,
    _ATEN.diagonal.default: _diagonal,
    _ATEN.diagonal_copy.default: _diagonal,
    _ATEN.full_like.default: _full_like,
    _ATEN.group_norm.default: _group_norm,
    _ATEN.index_add.default: SCATTER_RULES[_ATEN.index_add.default],
    _ATEN.index_put.default: on_int32(_ATEN.index_put.default, 1, torch.bool, PLACING_RULES),
    _ATEN.kron.default: RULES[_ATEN.kron.default],
    _ATEN.lerp.Scalar: _lerp,
    _ATEN.logcumsumexp.default: RULES[_ATEN.logcumsumexp.default],  # theirs overflows at 89
    _ATEN.pixel_shuffle.default: _in_four_axes(torch.pixel_shuffle),
    _ATEN.pixel_unshuffle.default: _in_four_axes(torch.pixel_unshuffle),
    _ATEN.rrelu.default: RULES[_ATEN.rrelu.default],
    _ATEN.scatter.src: on_int32(_ATEN.scatter.src, 2, torch.bool, PLACING_RULES),
    _ATEN.scatter.value: on_int32(_ATEN.scatter.value, 2, torch.bool, PLACING_RULES),
    _ATEN.scatter_reduce.two: SCATTER_RULES[_ATEN.scatter_reduce.two],
}
