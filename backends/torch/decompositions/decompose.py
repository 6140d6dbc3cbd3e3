"""Decompose operators that a format does not know, by PyTorch's own tables or edgeserve's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram


#: The result of one table may need another; more rounds than this have never helped.
_MAX_ROUNDS = 4


def decompose_unsupported(
    program: ExportedProgram, is_known: Callable[[Any], bool]
) -> ExportedProgram:
    """The program without unknown operators, as far as there are decompositions.

    Args:
        program: To start from.
        is_known: Whether the format has a translation for an operator.
    """
    tried: set[Any] = set()
    for _ in range(_MAX_ROUNDS):
        targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
        table = {
            target: rule
            for target in targets - tried
            if not is_known(target) and (rule := _decomposition(target)) is not None
        }
        if not table:
            break
        tried |= set(table)
        program = program.run_decompositions(table)
    return program


def _decomposition(target: Any) -> Callable[..., Any] | None:
    """The decomposition of an operator; None if there is none."""
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    from edgeserve.backends.torch.decompositions.table import RULES

    if not isinstance(target, OpOverload):
        return None
    return RULES.get(target) or decomposition_table.get(target) or composite(target)


def composite(target: Any) -> Callable[..., Any] | None:
    """What an operator is registered to be made of; None if it is no composite.

    Its own method ``decompose`` looks in the table of a decomposition first, where this goes.
    """
    from torch._C import DispatchKey

    key = DispatchKey.CompositeImplicitAutograd
    if not target.has_kernel_for_dispatch_key(key):
        return None
    return functools.partial(target._op_dk, key)
