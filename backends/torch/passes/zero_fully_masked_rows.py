"""Return zero for fully masked rows of attention, as PyTorch does.

With padding on the left, or with windowed attention, all keys of a query may be masked. PyTorch
returns zero for it. Formats divide zero by zero there, or attend to all keys, and NaN spreads to
every other row in the next layer. Here such a row attends to all keys, and its output is then
replaced by zero.
"""

from __future__ import annotations

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import arguments_of, insert

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention.default


def zero_fully_masked_rows(module: fx.GraphModule) -> bool:
    """Open masks of truth values that may hide all of a row's keys, and blank those rows' answers.

    A mask that is the same for all queries is left alone: it would have to hide the whole input.
    """
    opened: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=_ATTENTION):
        mask = arguments_of(node)["attn_mask"]
        if not isinstance(mask, fx.Node) or not _is_by_row(mask):
            continue
        if mask not in opened:
            opened[mask] = _unmask_empty_rows(node, mask)
        _zero_rows(node, *opened[mask])
        changed = True
    return changed


def _is_by_row(mask: fx.Node) -> bool:
    value = mask.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.bool or value.dim() < 2:
        return False
    rows = value.shape[-2]
    return not (isinstance(rows, int) and rows == 1)


def _unmask_empty_rows(at: fx.Node, mask: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The mask with its empty rows full, and which rows were not empty."""
    seen = insert(at, _ATEN.any.dim, mask, -1, True)
    blind = insert(at, _ATEN.logical_not.default, seen)
    full = insert(at, _ATEN.logical_or.default, mask, blind)
    seen.meta["val"] = mask.meta["val"][..., :1]
    full.meta["val"] = mask.meta["val"]
    return full, seen


def _zero_rows(node: fx.Node, mask: fx.Node, seen: fx.Node) -> None:
    if len(node.args) > 3:
        node.args = (*node.args[:3], mask, *node.args[4:])
    else:
        node.kwargs = {**node.kwargs, "attn_mask": mask}
    with node.graph.inserting_before(node):
        kept = node.graph.call_function(_ATEN.to.dtype, (seen, node.meta["val"].dtype))
    with node.graph.inserting_after(node):
        zero = node.graph.call_function(_ATEN.mul.Tensor, (node, kept))
    kept.meta |= {key: value for key, value in node.meta.items() if key != "val"}
    zero.meta = dict(node.meta)
    node.replace_all_uses_with(zero, delete_user_cb=lambda user: user is not zero)
