"""Remove operators that hand their input on as it is."""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["drop_idle"]

_ATEN = torch.ops.aten
_IDLE = {
    _ATEN.alias.default,
    _ATEN.detach.default,
    _ATEN.detach_.default,
    _ATEN.lift_fresh.default,
    _ATEN.lift_fresh_copy.default,
    _ATEN.positive.default,
}
_DROPOUT = {
    _ATEN.alpha_dropout.default,
    _ATEN.dropout.default,
    _ATEN.feature_alpha_dropout.default,
    _ATEN.feature_dropout.default,
}


def drop_idle(module: fx.GraphModule) -> bool:
    """Remove aliases, detachments and dropout outside training; readers take the input instead."""
    idle = [node for node in module.graph.nodes if _is_idle(node)]
    for node in idle:
        node.replace_all_uses_with(node.args[0])
        module.graph.erase_node(node)
    return bool(idle)


def _is_idle(node: fx.Node) -> bool:
    training = node.target in _DROPOUT and node.args[2] is not False
    return node.target in _IDLE | _DROPOUT and not training
