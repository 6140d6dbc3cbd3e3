"""Write values where a mask is true by choosing between two tensors.

``x[mask] = v`` with a mask of truth values is ``index_put``: PyTorch counts the true places first,
which no fixed graph can. Where the value is not one for each true place, ``where`` gives the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, kept_meta, tensor_of

__all__ = ["choose_by_mask"]

_ATEN = torch.ops.aten
_IN_PLACE = _ATEN.index_put_.default


def choose_by_mask(module: fx.GraphModule) -> bool:
    """Replace writes under one mask, whose value is the same wherever the mask is true."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in (_ATEN.index_put.default, _IN_PLACE) and (
            spelled := _spelled(module, node)
        ):
            node.replace_all_uses_with(spelled)
            module.graph.erase_node(node)
            changed = True
    return changed


def _spelled(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The choice that stands for a write; None where there is none."""
    x: Any = node.args[0]
    indices: Any = node.args[1]
    value: Any = node.args[2]
    adds = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    masks = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if adds or len(masks) != 1:
        return None
    (axis, mask), into = masks[0], _value(module, x)
    truth, given = _value(module, mask), _value(module, value)
    if into is None or truth is None or given is None or not _is_choice(into, axis, truth, given):
        return None
    behind = into.dim() - axis - truth.dim()
    for _ in range(behind):
        mask = insert(node, _ATEN.unsqueeze.default, mask, -1)
    if given.dim() > behind:  # its axis of true places has one size: it spreads over the mask's
        for _ in range(truth.dim() - 1):
            value = insert(node, _ATEN.unsqueeze.default, value, -behind - 1)
    made = insert(node, _ATEN.where.self, mask, value, x)
    made.meta = kept_meta(node)
    if node.target is not _IN_PLACE:
        return made
    written = insert(node, _ATEN.copy_.default, x, made)
    written.meta = kept_meta(node)
    return written


def _value(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else tensor_of(module, node)


def _is_choice(into: torch.Tensor, axis: int, mask: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a value does not tell one true place from another."""
    if mask.dtype != torch.bool or not mask.dim() or value.dtype != into.dtype:
        return False
    behind = into.dim() - axis - mask.dim()
    return behind >= 0 and (value.dim() <= behind or value.shape[-behind - 1] == 1)
