"""Lower arithmetic that converters get wrong: factors, and constants near 0 and 1.

Addition and subtraction in PyTorch take a factor for the second operand (``a + alpha * b``).
coremltools leaves it out without a word where it is given by name, which is how exported
programs give it. It becomes a product and a sum.

The optimizer behind `torch.onnx.export` takes a number within 1e-8 of 0 for 0 and one within
1e-5 of 1 for 1, and leaves sums and products with them out: ``x / (norm + 1e-12)`` then divides
by zero. It compares numbers only; a tensor of one element means the same and is left alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import insert, is_float, overloads

_ATEN = torch.ops.aten
_ALPHA_SUMS = overloads("add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar")

_MATRIX_PRODUCTS = overloads("addmm addmv addbmm baddbmm")


def lower_alpha(module: fx.GraphModule) -> bool:
    """Multiply by a factor that an addition or a subtraction was given; ``rsub`` turns around.

    ``rsub(x, y, alpha)`` is ``y - alpha * x``.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _MATRIX_PRODUCTS and _float_factors(node):
            changed = True
        if node.target in _ALPHA_SUMS and _alpha(node) != 1:
            _lower_scaled_sum(node)
            changed = True
    return changed


def _float_factors(node: fx.Node) -> bool:
    """Write whole factors of floating point products as what they are multiplied with."""
    whole = {key: value for key, value in node.kwargs.items() if type(value) is int}
    if not whole or not is_float(node):
        return False
    node.kwargs = {**node.kwargs, **{key: float(number) for key, number in whole.items()}}
    return True


def _alpha(node: fx.Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)


def _lower_scaled_sum(node: fx.Node) -> None:
    alpha, turned = _alpha(node), node.target in (_ATEN.rsub.Tensor, _ATEN.rsub.Scalar)
    first, second = (node.args[1], node.args[0]) if turned else node.args[:2]
    scaled: Any
    if isinstance(second, fx.Node):
        scaled = insert(node, _ATEN.mul.Tensor, second, alpha)
        if second.meta.get("val") is not None:
            scaled.meta["val"] = second.meta["val"] * alpha
    else:
        scaled = second * alpha
    if isinstance(first, fx.Node):
        minus = turned or node.target in (_ATEN.sub.Tensor, _ATEN.sub.Scalar)
        node.target = _ATEN.sub.Tensor if minus else _ATEN.add.Tensor
        node.args = (first, scaled)
    else:  # rsub of a number: number - scaled
        node.target, node.args = _ATEN.rsub.Scalar, (scaled, first)
    node.kwargs = {}


_SUMS = overloads("add.Tensor add.Scalar sub.Tensor sub.Scalar")
_PRODUCTS = overloads("mul.Tensor mul.Scalar div.Tensor div.Scalar")
_TENSOR = {
    _ATEN.add.Scalar: _ATEN.add.Tensor,
    _ATEN.sub.Scalar: _ATEN.sub.Tensor,
    _ATEN.mul.Scalar: _ATEN.mul.Tensor,
    _ATEN.div.Scalar: _ATEN.div.Tensor,
}


def preserve_tiny_constants(module: fx.GraphModule) -> bool:
    """Make numbers that would be taken for 0 or 1 tensors of one element."""
    changed = False
    for node in list(module.graph.nodes):
        if (node.target in _SUMS and _is_near(node, 0, 1e-7)) or (
            node.target in _PRODUCTS and _is_near(node, 1, 1e-4)
        ):
            value = node.meta["val"]
            kind = {"dtype": value.dtype, "device": value.device}
            number = insert(node, _ATEN.full.default, [1], node.args[1], **kind)
            node.args = (node.args[0], number, *node.args[2:])
            node.target = _TENSOR.get(node.target, node.target)
            changed = True
    return changed


def _is_near(node: fx.Node, idle: float, tolerance: float) -> bool:
    """Whether the second operand is a number close to one that does nothing, and is not that."""
    number = node.args[1]
    value = node.meta.get("val")
    if not isinstance(number, float) or not isinstance(value, torch.Tensor) or value.dim() == 0:
        return False
    return number != idle and abs(number - idle) <= tolerance
