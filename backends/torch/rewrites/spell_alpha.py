"""Write ``a + alpha * b`` as a product and a sum.

Addition and subtraction in PyTorch take a factor for the second operand. coremltools leaves it out
without a word where it is given by name, which is how exported programs give it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert

__all__ = ["spell_alpha"]

_ATEN = torch.ops.aten
_SUMS = {
    _ATEN.add.Tensor,
    _ATEN.add.Scalar,
    _ATEN.sub.Tensor,
    _ATEN.sub.Scalar,
    _ATEN.rsub.Tensor,
    _ATEN.rsub.Scalar,
}

_PRODUCTS = {_ATEN.addmm.default, _ATEN.addmv.default, _ATEN.addbmm.default, _ATEN.baddbmm.default}


def spell_alpha(module: fx.GraphModule) -> bool:
    """Multiply by a factor that an addition or a subtraction was given; ``rsub`` turns around.

    ``rsub(x, y, alpha)`` is ``y - alpha * x``.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _PRODUCTS and _float_factors(node):
            changed = True
        if node.target in _SUMS and _alpha(node) != 1:
            _spell(node)
            changed = True
    return changed


def _float_factors(node: fx.Node) -> bool:
    """Write whole factors of floating point products as what they are multiplied with."""
    whole = {key: value for key, value in node.kwargs.items() if type(value) is int}
    value = node.meta.get("val")
    if not whole or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    node.kwargs = {**node.kwargs, **{key: float(number) for key, number in whole.items()}}
    return True


def _alpha(node: fx.Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("alpha", 1)


def _spell(node: fx.Node) -> None:
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
