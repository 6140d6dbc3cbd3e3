"""Specialize an exported program with dynamic sizes for one choice of them, without a trace.

Tracing a transformer takes seconds, and a file with five lengths of text needs five programs that
differ in a few numbers. Sizes are computed by nodes of their own (``sym_size`` and arithmetic on
it); here each of them is replaced by its number.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.torch.passes.canonicalize import remove_asserts
from edgeserve.backends.torch.passes.fx_utils import read_instead
from edgeserve.backends.torch.program.io import log_warnings

_Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool


def specialize(program: ExportedProgram, shapes: Sequence[tuple[int, ...]]) -> ExportedProgram:
    """The same program, over the same tensors, for inputs of these shapes only.

    Args:
        program: With dynamic sizes; only what its inputs, weights and sizes tell is kept of the
            shapes that its nodes had.
        shapes: One for each input that a user gives.

    Raises:
        ValueError: the shapes contradict each other or the program's fixed sizes.
    """
    with log_warnings():
        module = fx.GraphModule(program.graph_module, copy.deepcopy(program.graph_module.graph))
        _fill_in(module, [str(name) for name in program.graph_signature.user_inputs], shapes)
        return ExportedProgram(
            root=module,
            graph=module.graph,
            state_dict=program.state_dict,
            range_constraints={},
            graph_signature=copy.deepcopy(program.graph_signature),
            constants=program.constants,
            module_call_graph=copy.deepcopy(program.module_call_graph),
            verifiers=program.verifiers,
        )


def _fill_in(
    module: fx.GraphModule, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> None:
    places = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    inputs = [places[name] for name in names]
    symbols = _symbols(inputs, shapes)
    for node, shape in zip(inputs, shapes, strict=True):
        node.meta["val"] = torch.empty(shape, dtype=node.meta["val"].dtype, device="meta")
    for node in list(module.graph.nodes):
        if isinstance(node.meta.get("val"), _Symbolic):
            read_instead(node, _number(node.meta["val"], symbols), list(node.users))
            module.graph.erase_node(node)
    remove_asserts(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def _symbols(inputs: Sequence[fx.Node], shapes: Sequence[tuple[int, ...]]) -> dict[Any, int]:
    """The value of each of the program's symbols for these shapes."""
    symbols: dict[Any, int] = {}
    later = []
    for node, shape in zip(inputs, shapes, strict=True):
        for size, number in zip(node.meta["val"].shape, shape, strict=True):
            expression = size.node.expr if isinstance(size, torch.SymInt) else size
            if getattr(expression, "is_symbol", False) and expression not in symbols:
                symbols[expression] = number
            later.append((size, number))
    for size, number in later:
        if (known := _number(size, symbols)) != number:
            raise ValueError(f"a size is {known} where {number} was asked for")
    return symbols


def _number(value: Any, symbols: Mapping[Any, int]) -> Any:
    """The value of a symbolic number."""
    if not isinstance(value, _Symbolic):
        return value
    known = value.node.expr.subs(symbols)
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
    return kind(known)
