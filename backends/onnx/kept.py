"""Which nodes a recipe keeps in float: those that came from its source ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.backends.onnx.clean import MODULE, SOURCE, all_nodes
from edgeserve.errors import QuantizeError

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgeserve.types.artifact import Recipe

__all__ = ["kept_nodes"]


def kept_nodes(model: ir.Model, recipe: Recipe) -> set[str]:
    """Names of the nodes that came from the ops or modules in ``recipe.keep_float``.

    A module's path stands for everything inside it. The model's nodes must have unique names.

    Raises:
        QuantizeError: EDGE-QUANTIZE-009, nothing in the file came from one of them.
    """
    found: set[str] = set()
    for entry in recipe.keep_float:
        nodes = {node.name or "" for node in all_nodes(model) if _came_from(node, entry)}
        if not nodes:
            raise QuantizeError(
                "EDGE-QUANTIZE-009",
                f"keep_float {entry!r}",
                wanted="a module's path or a node of the exported program that the file knows",
                got="nothing that came from it",
                hint="`edgeserve inspect` shows source and module",
            )
        found |= nodes
    return found


def _came_from(node: ir.Node, entry: str) -> bool:
    module = node.metadata_props.get(MODULE, "")
    return entry in (node.metadata_props.get(SOURCE), module) or module.startswith(f"{entry}.")
