"""Keep numbers that are nearly nothing.

The optimizer behind `torch.onnx.export` takes a number within 1e-8 of 0 for 0 and one within 1e-5
of 1 for 1, and leaves sums and products with them out: ``x / (norm + 1e-12)`` then divides by zero.
It compares numbers only; a tensor of one element means the same and is left alone.
"""

from __future__ import annotations

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert

__all__ = ["keep_epsilons"]

_ATEN = torch.ops.aten
_SUMS = {_ATEN.add.Tensor, _ATEN.add.Scalar, _ATEN.sub.Tensor, _ATEN.sub.Scalar}
_PRODUCTS = {_ATEN.mul.Tensor, _ATEN.mul.Scalar, _ATEN.div.Tensor, _ATEN.div.Scalar}
_TENSOR = {
    _ATEN.add.Scalar: _ATEN.add.Tensor,
    _ATEN.sub.Scalar: _ATEN.sub.Tensor,
    _ATEN.mul.Scalar: _ATEN.mul.Tensor,
    _ATEN.div.Scalar: _ATEN.div.Tensor,
}


def keep_epsilons(module: fx.GraphModule) -> bool:
    """Make numbers that would be taken for 0 or 1 tensors of one element."""
    changed = False
    for node in list(module.graph.nodes):
        if (node.target in _SUMS and _near(node, 0, 1e-7)) or (
            node.target in _PRODUCTS and _near(node, 1, 1e-4)
        ):
            value = node.meta["val"]
            number = insert(node, _ATEN.full.default, [1], node.args[1])
            number.kwargs = {"dtype": value.dtype, "device": value.device}
            node.args = (node.args[0], number, *node.args[2:])
            node.target = _TENSOR.get(node.target, node.target)
            changed = True
    return changed


def _near(node: fx.Node, idle: float, tolerance: float) -> bool:
    """Whether the second operand is a number close to one that does nothing, and is not that."""
    number = node.args[1]
    value = node.meta.get("val")
    if not isinstance(number, float) or not isinstance(value, torch.Tensor) or value.dim() == 0:
        return False
    return number != idle and abs(number - idle) <= tolerance
