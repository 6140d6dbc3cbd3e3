"""Write a division that rounds down as a division, a remainder and a correction.

LiteRT's converter rounds the quotient with an operation that it then cannot express. The quotient
itself is not enough either: 1 / 0.1 is 10 in float32, and PyTorch says that 0.1 goes 9 times into
1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert

__all__ = ["spell_division"]

_ATEN = torch.ops.aten
_DIVISIONS = {
    _ATEN.div.Tensor_mode,
    _ATEN.div.Scalar_mode,
    _ATEN.floor_divide.default,
    _ATEN.floor_divide.Scalar,
}


def spell_division(module: fx.GraphModule) -> bool:
    """Replace divisions of floating point numbers that round down."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _DIVISIONS and _rounds_down(node) and _is_float(node):
            node.replace_all_uses_with(_spelled(node))
            module.graph.erase_node(node)
            changed = True
    return changed


def _rounds_down(node: fx.Node) -> bool:
    if node.target in (_ATEN.floor_divide.default, _ATEN.floor_divide.Scalar):
        return True
    return node.kwargs.get("rounding_mode") == "floor"


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _spelled(node: fx.Node) -> fx.Node:
    """As PyTorch itself computes it: ``(x - r) / y``, one less where r and y differ in sign."""
    x: Any = node.args[0]
    y: Any = node.args[1]

    def call(name: str, *args: Any) -> fx.Node:
        packet = getattr(_ATEN, name)
        scalar = not isinstance(args[-1], fx.Node)
        overload = "default" if len(args) == 1 else ("Scalar" if scalar else "Tensor")
        return insert(node, getattr(packet, overload), *args)

    rest = call("fmod", x, y)
    whole = call("div", call("sub", x, rest), y)
    turned = call("lt", call("mul", rest, y), 0.0)
    less = insert(node, _ATEN.to.dtype, turned, node.meta["val"].dtype)
    made = call("round", call("sub", whole, less))
    made.meta["val"] = node.meta["val"]
    return made
