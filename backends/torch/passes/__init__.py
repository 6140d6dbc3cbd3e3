"""Passes over an exported graph, applied per format: small, exact and architecture-independent.

A pass edits the plain graph of ``program.module()`` and returns whether it changed anything; the
caller then exports that module again, so that torch itself recomputes shapes and signature. No pass
changes the module's outputs beyond float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx
from torch.export import ExportedProgram

__all__ = ["Pass", "apply_passes", "apply_passes_in_place"]

#: Edits a graph in place; whether it changed anything.
Pass = Callable[[fx.GraphModule], bool]


def apply_passes(module: fx.GraphModule, rewrites: Iterable[Pass]) -> tuple[str, ...]:
    """Apply passes in order.

    Returns:
        Names of the passes that changed the graph.
    """
    changed = []
    for rewrite in rewrites:
        if rewrite(module):
            changed.append(str(getattr(rewrite, "__name__", rewrite)))
            module.graph.eliminate_dead_code()
            module.recompile()
    return tuple(changed)


def apply_passes_in_place(program: ExportedProgram, rewrites: Iterable[Pass]) -> tuple[str, ...]:
    """Apply passes that store no tensors to a program, without another trace.

    Returns:
        Names of the passes that changed the graph.
    """
    output = program.graph.output_node()
    before = [node.name for node in output.all_input_nodes]
    places = [str(node) for node in output.args[0]]
    changed = apply_passes(program.graph_module, rewrites)
    for spec, old, node in zip(
        program.graph_signature.output_specs, places, output.args[0], strict=True
    ):
        if old in before and isinstance(node, fx.Node) and node.name != old:
            spec.arg.name = node.name
    return changed
