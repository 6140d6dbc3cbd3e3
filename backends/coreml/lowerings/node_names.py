"""No node may bear a name that is also a word among the arguments.

coremltools keeps the values of nodes and the words that operators are given (``"floor"``,
``"tanh"``, an equation) in one list: after ``floor(x)``, whose node is called ``floor``, the
rounding mode of a division is taken for that node's value. Nodes that meet a word get another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["part_names"]


def part_names(program: ExportedProgram) -> bool:
    """Rename in place each node whose name is a word that some operator is given.

    Returns:
        Whether there was one.
    """
    nodes = list(program.graph.nodes)
    words = {word for node in nodes for word in _words((node.args, node.kwargs))}
    met = [node for node in nodes if node.name in words]
    taken = words | {node.name for node in nodes}
    for node in met:
        old, new = node.name, _free(node.name, taken)
        node._rename(new)
        taken.add(node.name)
        program.graph_signature.replace_all_uses(old, node.name)
        for spec in program.graph_signature.input_specs:
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = node.name
    return bool(met)


def _free(name: str, taken: set[str]) -> str:
    number = 0
    while f"{name}_value_{number}" in taken:
        number += 1
    return f"{name}_value_{number}"


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _words(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _words(each)
