"""Write out the type promotion of operators whose operands differ in dtype.

PyTorch computes ``1.0 - ids``, ``cat([ids, x])`` or ``ids > 0.5`` in the common dtype of the
operands. Converters promote in some operators only, promote to 64 bits, or reject the operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import insert, overloads

_ATEN = torch.ops.aten


def _every(names: str) -> set[Any]:
    """All overloads of operators of ATen that return a new tensor."""
    packets = [getattr(_ATEN, name) for name in names.split()]
    return {
        getattr(each, kind) for each in packets for kind in each.overloads() if "out" not in kind
    }


_COMPARISONS = _every("eq ne lt le gt ge")
#: Operators that compute in the dtype of their result.
_ARITHMETIC = _every(
    "add sub rsub mul div true_divide floor_divide remainder fmod pow maximum minimum clamp "
    "clamp_min clamp_max clip atan2 copysign hypot lerp cat concat concatenate stack hstack vstack "
    "dstack column_stack row_stack"
)
_CHOICES = overloads("where.self where.ScalarSelf where.ScalarOther where.Scalar")


def promote_operands(module: fx.GraphModule) -> bool:
    """Cast tensors to the dtype in which their operator computes; ``meta["val"]`` must be known."""
    changed = False
    for node in list(module.graph.nodes):
        dtype = _computed_in(node)
        if dtype is not None:
            changed = _cast_operands(node, dtype) or changed
    return changed


def _computed_in(node: fx.Node) -> torch.dtype | None:
    """The dtype in which an operator computes; None where that is not promoted."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    if node.target in _COMPARISONS:
        first, second = (
            each.meta["val"] if isinstance(each, fx.Node) else each for each in node.args
        )
        return torch.result_type(first, second)
    return value.dtype if node.target in _ARITHMETIC | _CHOICES else None


def _cast_operands(node: fx.Node, dtype: torch.dtype) -> bool:
    made: dict[fx.Node, fx.Node] = {}

    def cast(operand: fx.Node) -> fx.Node:
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype == dtype:
            return operand
        if operand not in made:
            made[operand] = insert(node, _ATEN.to.dtype, operand, dtype)
            made[operand].meta["val"] = value.to(dtype)
        return made[operand]

    kept = 1 if node.target in _CHOICES else 0  # the condition
    node.args = (*node.args[:kept], *fx.map_arg(node.args[kept:], cast))  # type: ignore[misc]
    node.kwargs = fx.map_arg(node.kwargs, cast)  # type: ignore[assignment]
    return bool(made)
