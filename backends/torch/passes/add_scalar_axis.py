"""Give single numbers an axis where an operator works along one.

PyTorch takes ``dim=0`` and ``dim=-1`` for a tensor without axes, as if it had one of size 1.
Converters and decompositions look its size up and fail.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    arguments_of,
    call_with_value,
    kept_meta,
    overloads,
    shape_of,
)

_ATEN = torch.ops.aten

#: Names of arguments that hold one axis or several.
_AXES = ("dim", "dims", "dim0")

#: Operators that add axes: 0 and -1 mean two of them, and ``dims`` of `tile` are repeats.
_ADDING = overloads("unsqueeze stack tile")


def add_scalar_axis(module: fx.GraphModule) -> bool:
    """Reshape the operands of such operators to one axis, and take it from their results."""
    found = [node for node in module.graph.nodes if _has_missing_axis(node)]
    for node in found:
        _add_axis(module, node)
    return bool(found)


def _has_missing_axis(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in _ADDING:
        return False
    given = arguments_of(node)
    first = next(iter(given.values()), None)
    along = any(given.get(each) not in (None, [], ()) for each in _AXES)
    return along and shape_of(first) == ()


def _add_axis(module: fx.GraphModule, node: fx.Node) -> None:
    def with_axis(operand: fx.Node) -> fx.Node:
        if shape_of(operand) != ():
            return operand
        return call_with_value(node, _ATEN.reshape.default, operand, [1])

    args: Any = fx.map_arg(node.args, with_axis)
    kwargs: Any = fx.map_arg(node.kwargs, with_axis)
    made = call_with_value(node, node.target, *args, **kwargs)
    whole = isinstance(node.meta["val"], torch.Tensor)
    for result in [node] if whole else list(node.users):
        part = made if whole else call_with_value(node, operator.getitem, made, result.args[1])
        back = part
        if part.meta["val"].dim():
            back = call_with_value(node, _ATEN.squeeze.dim, part, 0)
        back.meta |= kept_meta(result)
        result.replace_all_uses_with(back)
        if not whole:
            module.graph.erase_node(result)
    module.graph.erase_node(node)
