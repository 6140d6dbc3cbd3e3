"""No argument of an operator may get lost.

Exported programs give many arguments by name. coremltools' translations look for the names that
their authors thought of, and leave out any other without a word: ``x.add(y, alpha=2)`` becomes
``x + y``. Here each translation is watched, and a name that it never asked for is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["watch_keywords"]

#: Names that say where and how a tensor lies in memory, or what its dtype already says.
_IDLE = frozenset(
    {
        "copy",
        "device",
        "dtype",
        "generator",
        "implicit",
        "layout",
        "memory_format",
        "non_blocking",
        "out",
        "pin_memory",
    }
)


class _Watched(dict[str, Any]):
    """Keyword arguments that remember which were asked for."""

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


def watch_keywords(table: dict[str, Callable[..., Any]]) -> None:
    """Put the watch around every translation of a table that has none yet."""
    for name, function in table.items():
        if not hasattr(function, "watched_by_edgeserve"):
            table[name] = _watched(function)


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(context: Any, node: Any) -> Any:
        if not node.kwinputs:
            return function(context, node)
        node.kwinputs = given = _Watched(node.kwinputs)
        result = function(context, node)
        if lost := sorted(set(given) - given.asked - _IDLE):
            raise NotImplementedError(f"argument {lost[0]!r} of {node.kind} has no translation")
        return result

    watched.watched_by_edgeserve = True  # type: ignore[attr-defined]
    return watched
