"""Write operators that few converters know in words that all know.

``x.new_zeros(s)`` is ``full`` with the dtype of ``x``; ``a & b`` on tensors is ``bitwise_and``, and
``logical_and`` where both are truth values; torch's own test whether all of a tensor is true is
``all``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import kept_meta

__all__ = ["plain_names"]

_ATEN = torch.ops.aten

#: Operators of the same arguments under a name that converters know.
_SAME: dict[Any, Any] = {
    _ATEN.__and__.Tensor: _ATEN.bitwise_and.Tensor,
    _ATEN.__and__.Scalar: _ATEN.bitwise_and.Scalar,
    _ATEN.__or__.Tensor: _ATEN.bitwise_or.Tensor,
    _ATEN.__or__.Scalar: _ATEN.bitwise_or.Scalar,
    _ATEN.__xor__.Tensor: _ATEN.bitwise_xor.Tensor,
    _ATEN.__xor__.Scalar: _ATEN.bitwise_xor.Scalar,
    _ATEN.__lshift__.Tensor: _ATEN.bitwise_left_shift.Tensor,
    _ATEN.__lshift__.Scalar: _ATEN.bitwise_left_shift.Tensor_Scalar,
    _ATEN.__rshift__.Tensor: _ATEN.bitwise_right_shift.Tensor,
    _ATEN.__rshift__.Scalar: _ATEN.bitwise_right_shift.Tensor_Scalar,
    _ATEN._is_all_true.default: _ATEN.all.default,
    _ATEN._is_any_true.default: _ATEN.any.default,
}

#: What operators on bits are where there is but one.
_TRUTH: dict[Any, Any] = {
    _ATEN.bitwise_and.Tensor: _ATEN.logical_and.default,
    _ATEN.bitwise_or.Tensor: _ATEN.logical_or.default,
    _ATEN.bitwise_xor.Tensor: _ATEN.logical_xor.default,
    _ATEN.bitwise_not.default: _ATEN.logical_not.default,
}

#: What ``new_...`` fills a tensor with; None: the number that it is given.
_NEW: dict[Any, float | None] = {
    _ATEN.new_zeros.default: 0,
    _ATEN.new_ones.default: 1,
    _ATEN.new_full.default: None,
    _ATEN.new_empty.default: 0,
}


def plain_names(module: fx.GraphModule) -> bool:
    """Rename what has a plain name; the values' dtypes must be known (``meta["val"]``)."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _SAME:
            node.target, changed = _SAME[node.target], True
        if node.target in _TRUTH and all(map(_is_truth, (node, *node.all_input_nodes))):
            node.target, changed = _TRUTH[node.target], True
        elif node.target in _NEW and isinstance(node.meta.get("val"), torch.Tensor):
            _fill(node, _NEW[node.target])
            changed = True
    return changed


def _is_truth(node: fx.Node) -> bool:
    return getattr(node.meta.get("val"), "dtype", None) is torch.bool


def _fill(node: fx.Node, number: float | None) -> None:
    """Make ``new_...(x, size[, number])`` a ``full(size, number)``."""
    value = node.meta["val"]
    filler: Any = node.args[2] if number is None else number
    if value.dtype is torch.bool and isinstance(filler, int | float):
        filler = bool(filler)
    with node.graph.inserting_before(node):
        made = node.graph.call_function(
            _ATEN.full.default, (node.args[1], filler), {"dtype": value.dtype}
        )
    made.meta = kept_meta(node)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
