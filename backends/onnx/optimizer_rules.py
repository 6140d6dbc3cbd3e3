"""Corrections of the rules by which onnxscript optimizes what `torch.onnx.export` makes.

Its rule for a scatter over all rows puts the values in place of the result, for scatters that add
as well. Its rules for clips and for layers with a batch norm name constants after their input: two
clips of one value then share one constant, and the file is not valid. A clip fused from two that
exclude each other gives the upper bound, where the second one has the last word.

One rule is our own: ONNX Runtime has no kernel that chooses between truth values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import rewriter
from onnxscript.rewriter import RewriteRule

from edgeserve.backends.onnx.graph_values import scatters_by_reduction


class _CorrectedRule(RewriteRule):
    """A rule that is not applied where it changes values, and whose constants have own names."""

    def __init__(self, rule: RewriteRule) -> None:
        vars(self).update(vars(rule))

    def try_rewrite(self, *place: Any, **how: Any) -> Any:
        """What takes the place of a node and those before it; None: they stay.

        Args:
            place: Model, graph, node.
            how: As it comes.
        """
        _, graph, node = place
        if scatters_by_reduction(node):
            return None
        made = super().try_rewrite(*place, **how)
        if made is None or any(map(_is_inverted_clip, made.new_nodes)):
            return None
        if isinstance(graph, ir.Graph):
            _rename_constants(graph, made)
        return made


def _is_inverted_clip(node: ir.Node) -> bool:
    """A clip whose lower bound is above the upper one."""
    bounds = node.inputs[1:] if node.op_type == "Clip" else ()
    if len(bounds) < 2 or any(each is None or each.const_value is None for each in bounds):
        return False
    low, high = (each.const_value.numpy() for each in bounds)  # type: ignore[union-attr]
    return bool(np.any(low > high))


def _rename_constants(graph: ir.Graph, made: Any) -> None:
    """Give new constants a name that no constant has which other nodes read."""
    for value in made.new_initializers:
        name, number = value.name, 0
        while _is_taken(graph, value.name, set(made.match.nodes)):
            number += 1
            value.name = f"{name}_{number}"


def _is_taken(graph: ir.Graph, name: str, replaced: set[ir.Node]) -> bool:
    held = graph.initializers.get(name)
    return held is not None and any(use.node not in replaced for use in held.uses())


def _chosen(op: Any, where: Any, left: Any, right: Any) -> Any:
    return op.Where(where, left, right)


def _chosen_by_logic(op: Any, where: Any, left: Any, right: Any) -> Any:
    return op.Or(op.And(where, left), op.And(op.Not(where), right))


def _are_bools(_: Any, left: ir.Value, right: ir.Value, **others: Any) -> bool:
    return ir.DataType.BOOL in (left.dtype, right.dtype)


def register_rules() -> None:
    """Correct the optimizer's default rules and add our own; once."""
    rules = rewriter._DEFAULT_REWRITE_RULES
    if not all(isinstance(rule, _CorrectedRule) for rule in rules):
        choice = RewriteRule(_chosen, _chosen_by_logic, _are_bools)
        rewriter._DEFAULT_REWRITE_RULES = tuple(map(_CorrectedRule, (*rules, choice)))
