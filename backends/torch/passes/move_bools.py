"""Let operators that only move elements move integers in the place of truth values.

coremltools gathers and writes numbers only: ``(x > 0).unfold(0, 2, 1)`` has no translation. Truth
values become 0 and 1, and what arrives becomes a truth value again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    call_with_value,
    dtype_of,
    overloads,
    replace_each,
)

_ATEN = torch.ops.aten

_MOVING = overloads(
    "constant_pad_nd diag_embed diagonal flip gather index.Tensor index_copy index_fill.int_Scalar "
    "index_put index_select masked_fill.Scalar pad repeat repeat_interleave.self_int roll rot90 "
    "scatter.src scatter.value select_scatter slice_scatter take tile tril triu unfold"
)

#: Arguments that hold what is moved; the others are places and masks.
_MOVED = ("self", "input", "src", "source", "value", "values")


def move_bools(module: fx.GraphModule) -> bool:
    """Cast the operands of such operators, and their results back."""
    return replace_each(module, _MOVING, _through_integers)


def _through_integers(node: fx.Node) -> fx.Node | None:
    if dtype_of(node) is not torch.bool:
        return None

    def cast(name: str, operand: Any) -> Any:
        if name not in _MOVED or dtype_of(operand) is not torch.bool:
            return int(operand) if name in _MOVED and type(operand) is bool else operand
        return call_with_value(node, _ATEN.to.dtype, operand, torch.int32)

    names = [each.name for each in node.target._schema.arguments]  # type: ignore[union-attr]
    given = [cast(name, operand) for name, operand in zip(names, node.args, strict=False)]
    named = {name: cast(name, operand) for name, operand in node.kwargs.items()}
    moved = call_with_value(node, node.target, *given, **named)
    return call_with_value(node, _ATEN.ne.Scalar, moved, 0)
