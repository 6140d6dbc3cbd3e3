"""Checks of arguments that coremltools would drop, or confuse with nodes.

Exported programs give many arguments by name. coremltools' translations read only the names that
their authors expected and silently ignore any other: ``x.add(y, alpha=2)`` becomes ``x + y``. Here
each translation is wrapped, and an argument that it never read is an error.

coremltools also keeps the values of nodes and string arguments (``"floor"``, ``"tanh"``, an
equation) in one table: after ``floor(x)``, whose node is named ``floor``, the rounding mode of a
division would be that node's value. Nodes with such a name are renamed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram


#: Arguments about memory, or about a dtype that is known already.
_IGNORED = frozenset(
    "copy device dtype generator implicit layout memory_format non_blocking out pin_memory".split()
)


class _TrackedKeywords(dict[str, Any]):
    """Keyword arguments that record which of them were read."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def check_unread_keywords(table: dict[str, Callable[..., Any]]) -> None:
    """Wrap every translation of a table that is not wrapped yet."""
    for name, function in table.items():
        if not hasattr(function, "watched_by_edgeserve"):
            table[name] = _tracked(function)


def _tracked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(context: Any, node: Any) -> Any:
        if not node.kwinputs:
            return function(context, node)
        node.kwinputs = given = _TrackedKeywords(node.kwinputs)
        result = function(context, node)
        if lost := sorted(set(given) - given.asked - _IGNORED):
            raise NotImplementedError(f"argument {lost[0]!r} of {node.kind} has no translation")
        return result

    watched.watched_by_edgeserve = True  # type: ignore[attr-defined]
    return watched


def rename_ambiguous_nodes(program: ExportedProgram) -> bool:
    """Rename in place each node whose name is a string argument of some operator.

    Returns:
        Whether there was one.
    """
    nodes = list(program.graph.nodes)
    words = {word for node in nodes for word in _words((node.args, node.kwargs))}
    ambiguous = [node for node in nodes if node.name in words]
    taken = words | {node.name for node in nodes}
    for node in ambiguous:
        old, new = node.name, _free(node.name, taken)
        node._rename(new)
        taken.add(node.name)
        program.graph_signature.replace_all_uses(old, node.name)
        for spec in program.graph_signature.input_specs:
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = node.name
    return bool(ambiguous)


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
