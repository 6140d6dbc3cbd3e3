"""Attention with four axes, the only rank that the ONNX translation takes.

PyTorch takes queries, keys and values without an axis for heads or batch, and with more axes before
them. Missing axes become axes of size 1, and several become one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import arguments_of, insert

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention.default

#: Batch, heads, positions, features.
_RANK = 4


def lower_attention_rank(module: fx.GraphModule) -> bool:
    """Bring the operands of ``scaled_dot_product_attention`` to four axes, in place."""
    changed = False
    for node in list(module.graph.find_nodes(op="call_function", target=_ATTENTION)):
        given = arguments_of(node)
        operands = [given[name] for name in ("query", "key", "value")]
        mask = given["attn_mask"]
        shapes = [each.meta["val"].shape for each in (*operands, node)]
        if len({len(shape) for shape in shapes}) == 1 and _is_liftable(shapes, mask):
            _with_four_axes(node, operands, mask)
            changed = True
    return changed


def _is_liftable(shapes: list[torch.Size], mask: Any) -> bool:
    """Whether axes are missing, or those before the heads are the same everywhere and fixed."""
    if len(shapes[0]) <= _RANK:
        return len(shapes[0]) < _RANK
    fronts = {tuple(map(str, shape[: 1 - _RANK])) for shape in shapes}
    fixed = all(isinstance(size, int) for size in shapes[-1])
    spread = isinstance(mask, fx.Node) and mask.meta["val"].dim() > 2
    return len(fronts) == 1 and fixed and not spread


def _with_four_axes(node: fx.Node, operands: list[fx.Node], mask: Any) -> None:
    value = node.meta["val"]
    args = [_lifted(node, each) for each in operands]
    if isinstance(mask, fx.Node) and mask.meta["val"].dim() > 2:
        mask = _lifted(node, mask)
    named = {key: each for key, each in node.kwargs.items() if key != "attn_mask"}
    made = insert(node, _ATTENTION, *args, mask, *node.args[4:], **named)
    missing = _RANK - value.dim()
    shape = args[0].meta["val"].shape
    made.meta = {**node.meta, "val": value.new_empty([*shape[:-1], value.shape[-1]])}
    for _ in range(missing):
        made = _with_value(insert(node, _ATEN.squeeze.dim, made, 0), made.meta["val"].squeeze(0))
    if missing < 0:
        made = _with_value(insert(node, _ATEN.reshape.default, made, list(value.shape)), value)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def _lifted(at: fx.Node, node: fx.Node) -> fx.Node:
    """A value with four axes."""
    rank = node.meta["val"].dim()
    for _ in range(_RANK - rank):
        node = _with_value(
            insert(at, _ATEN.unsqueeze.default, node, 0), node.meta["val"].unsqueeze(0)
        )
    if rank <= _RANK:
        return node
    flat = node.meta["val"].flatten(0, rank - _RANK)
    return _with_value(insert(at, _ATEN.flatten.using_ints, node, 0, rank - _RANK), flat)


def _with_value(node: fx.Node, value: torch.Tensor) -> fx.Node:
    node.meta["val"] = value
    return node
