"""Rules for operators that litert_torch does not translate, or not in all uses.

A rule that does not apply leaves the operator as it is (`NotImplemented`). Operators unknown to
litert_torch are decomposed by PyTorch's own tables. Sorting is lowered to the only form that LiteRT
runs, the largest values of the last axis: ``TOPK_V2`` is the only kernel that orders values, and
the converter writes anything else as an operation that no engine has. Of equal values it takes the
first, so that a sort made of it is stable. The kernel is only used if the indices are read: values
are gathered by them.
"""

from __future__ import annotations

import functools
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
_SCATTERS = {**PLACING_RULES, **SCATTER_RULES}
_Pair = tuple[Tensor, Tensor]


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if dim == x.dim() - 1 and largest and x.shape[dim] != 1:
        return NotImplemented  # in that form: `_sort_by_topk` counts that axis from the front
    return _sort_by_topk(x, k, dim, largest)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return _sort_by_topk(x, x.shape[dim], dim, descending) if x.dim() else NotImplemented


def _sort_by_topk(x: Tensor, k: int, dim: int, largest: bool) -> _Pair:
    if x.shape[dim] == 1:  # the converter leaves a sort out of which no engine has the operation
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    last = x.movedim(dim, -1) if x.dim() > 1 else x
    _, places = torch.topk(last if largest else -last, k, last.dim() - 1)
    values = torch.gather(last, -1, places)
    return values.movedim(-1, dim).contiguous(), places.movedim(-1, dim).contiguous()


#: Rules by operator; `NotImplemented` leaves it as it is.
SORT_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.argsort.default: lambda x, dim=-1, descending=False: _sort_by_topk(
        x, x.shape[dim], dim, descending
    )[1],
    _ATEN.sort.default: _sort,
    _ATEN.sort.stable: lambda x, *, stable=None, **how: _sort(x, **how),
    _ATEN.topk.default: _topk,
}


def _extreme(reduce: Callable[..., Tensor]) -> Callable[..., Any]:
    """``max`` or ``min`` along an axis of one, or of 64 bits, for which no engine has kernels."""

    def rule(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        if not x.dim() or (x.shape[dim] != 1 and x.dtype != torch.int64):
            return NotImplemented
        best = reduce(x, dim, True)
        places = _first_place(x, best, dim, keepdim)
        return (best if keepdim else best.squeeze(dim)), places

    return rule


def _slice_scatter(x: Tensor, part: Tensor, dim: int = 0, *range: Any, **named: Any) -> Any:
    """The converter counts axes from the front only."""
    if dim >= 0:
        return NotImplemented
    return torch.slice_scatter(x, part, dim % x.dim(), *range, **named)


def _select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    """The converter's rule keeps the axis out of ``part``, so that the kernel sees two ranks."""
    at = index % x.shape[dim]
    return torch.slice_scatter(x, part.unsqueeze(dim), dim % x.dim(), at, at + 1)


def _flip(x: Tensor, dims: list[int]) -> Any:
    """One axis after the other where they are not neighbours: the kernel takes neighbours only."""
    axes = sorted(dim % x.dim() for dim in dims)
    if len(axes) < 2 or axes[-1] - axes[0] == len(axes) - 1:
        return NotImplemented
    for axis in axes:
        x = torch.flip(x, [axis])
    return x


def _logical_xor(x: Tensor, y: Tensor) -> Any:
    """Exclusive or as an inequality."""
    if x.dtype != torch.bool or y.dtype != torch.bool:
        return NotImplemented
    return x.to(torch.int32) != y.to(torch.int32)


def _bitwise_xor(x: Tensor, y: Tensor) -> Any:
    """The kernel supports 32 bits, the width of the format's integers."""
    if x.dtype != torch.int64 or y.dtype != torch.int64:
        return NotImplemented
    return torch.bitwise_xor(x.to(torch.int32), y.to(torch.int32)).to(torch.int64)


def _abs(x: Tensor) -> Any:
    """Of integers; the converter knows floats."""
    whole = not (x.is_floating_point() or x.is_complex())
    return torch.maximum(x, -x) if whole else NotImplemented


def _sign(x: Tensor) -> Any:
    if x.is_floating_point() or x.is_complex():
        return NotImplemented
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


def _whole(x: Tensor, size: int | list[int], dim: int = 0) -> Any:
    """A single part is a list too, which the converter takes for a tensor."""
    parts = len(size) if isinstance(size, list) else -(-x.shape[dim] // max(size, 1))
    return [x.clone()] if parts == 1 else NotImplemented


def _first_place(x: Tensor, best: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Where an element is the best one first, along an axis that ``best`` keeps."""
    places = torch.arange(x.shape[dim]).reshape([-1] + [1] * (x.dim() - 1 - dim % x.dim()))
    return torch.where(x == best, places, x.shape[dim]).amin(dim, keepdim)


def _arg_reduction(reduce: Callable[..., Tensor]) -> Callable[..., Any]:
    """The places of `_extreme`, along an axis or in all."""
    along = _extreme(reduce)

    def rule(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None:
            found = along(x, dim, keepdim)
            return found if found is NotImplemented else found[1]
        if x.dtype != torch.int64 or not x.dim():
            return NotImplemented
        place = along(x.reshape(-1), 0)[1]
        return place.reshape([1] * x.dim()) if keepdim else place

    return rule


#: Rules by operator; `NotImplemented` leaves it as it is.
CORRECTIONS: dict[Any, Callable[..., Any]] = {
    **_SCATTERS,
    **BITWISE_RULES,
    **INDEXING_RULES,
    **SHIFT_RULES,
    **LINALG_RULES,
    **SORT_RULES,
    _ATEN.abs.default: _abs,
    _ATEN.argmax.default: _arg_reduction(torch.amax),
    _ATEN.argmin.default: _arg_reduction(torch.amin),
    _ATEN.bilinear.default: RULES[_ATEN.bilinear.default],
    _ATEN.bitwise_not.default: lambda x: NotImplemented if x.dtype == torch.bool else -1 - x,
    _ATEN.bitwise_xor.Tensor: _bitwise_xor,
    _ATEN.flip.default: _flip,
    _ATEN.index_put.default: on_int32(_ATEN.index_put.default, 1, torch.int64, _SCATTERS),
    _ATEN.kron.default: RULES[_ATEN.kron.default],
    _ATEN.logical_xor.default: _logical_xor,
    _ATEN.max.dim: _extreme(torch.amax),
    _ATEN.min.dim: _extreme(torch.amin),
    _ATEN.scatter.src: on_int32(_ATEN.scatter.src, 2, torch.int64, _SCATTERS),
    _ATEN.scatter.value: on_int32(_ATEN.scatter.value, 2, torch.int64, _SCATTERS),
    _ATEN.select_scatter.default: _select_scatter,
    _ATEN.sign.default: _sign,
    _ATEN.one_hot.default: RULES[_ATEN.one_hot.default],
    _ATEN.rrelu.default: RULES[_ATEN.rrelu.default],
    _ATEN.slice_scatter.default: _slice_scatter,
    _ATEN.split.Tensor: _whole,
    _ATEN.split_with_sizes.default: _whole,
}

#: Their arguments, repeats and the axes of matrices, are not moved with the axes.
_CHANNELS_FIRST = (_ATEN.repeat.default, _ATEN._cdist_forward.default)
_INDEXING = (_ATEN.index.Tensor, _ATEN._unsafe_index.Tensor)


@functools.cache
def correct_layout_rules() -> None:
    """Keep operators channels first that litert_torch's layout pass would move wrongly; once.

    Of indexing, the order of the result's axes depends on which axes have an index: it may move
    where one axis alone has one, and a list of places.
    """
    from litert_torch._convert.fx_passes.optimize_layout_transposes_pass import (
        layout_check,
        layout_rewrite,
    )

    for operator in _CHANNELS_FIRST:
        layout_rewrite.rewriters.pop(operator, None)
    checkers = layout_check.nhwcable_node_checkers
    for operator in _INDEXING:
        checkers[operator] = _only_one_index(checkers[operator], layout_check.NHWCable)


def _only_one_index(checker: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    def check(node: torch.fx.Node) -> Any:
        indices = [index for index in node.args[1] if index is not None]  # type: ignore[union-attr]
        if len(indices) == 1 and indices[0].meta["val"].dim() == 1:  # type: ignore[union-attr]
            return checker(node)
        return answer(can_be=False, must_be=False)

    return check


def register_decompositions() -> None:
    """Add PyTorch's decompositions of operators without a lowering to those of litert_torch.

    litert_torch applies the rules of core ATen only, and rejects an operator that is left after
    them without a lowering; PyTorch has rules for many of those.
    """
    from litert_torch.backend.lowerings import registry
    from litert_torch.fx_infra import decomp
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    for operator, rule in CORRECTIONS.items():
        decomp.add_pre_convert_decomp(operator, rule)
    there = decomp.pre_lower_decomp()
    for operator, rule in (*RULES.items(), *decomposition_table.items()):
        if not isinstance(operator, OpOverload) or operator in there:
            continue
        if registry.lookup(operator) is None:
            decomp.add_pre_convert_decomp(operator, rule)
            there[operator] = rule
