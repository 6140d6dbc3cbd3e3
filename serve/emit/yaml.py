"""YAML written plainly: maps, lists, text, numbers. Nothing that two readers could take apart."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["document"]

#: Text that every reader of YAML takes as text without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]*")
#: ... but for what some take as a truth value or nothing.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}


def document(value: dict[str, Any], comment: str = "") -> bytes:
    """One document.

    Args:
        value: Maps, lists, str, int and bool, nested.
        comment: Lines to stand above it.
    """
    above = [f"# {line}".rstrip() for line in comment.splitlines()]
    return ("\n".join([*above, *_lines(value, 0)]) + "\n").encode()


def _lines(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    found: list[str] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _entry(f"{pad}{_scalar(key)}:", inner, depth + 1)
        return found
    for item in value:
        if isinstance(item, dict) and item:
            first, *rest = _lines(item, depth + 1)
            found += [f"{pad}- {first.lstrip()}", *rest]
        else:
            found += _entry(f"{pad}-", item, depth + 1)
    return found


def _entry(start: str, value: Any, depth: int) -> list[str]:
    if isinstance(value, dict | list) and value:
        return [start, *_lines(value, depth)]
    empty = "{}" if isinstance(value, dict) else "[]"
    return [f"{start} {empty if isinstance(value, dict | list) else _scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    return json.dumps(value)
