"""What a field of a processing may hold, for the message about a word that it may not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from edgeserve.types.processing import Processing

__all__ = ["with_allowed"]

_ENUM = re.compile(r"Invalid enum value '(.*)' - at `(.*)\.(\w+)`")


def with_allowed(error: Exception) -> str:
    """An error of msgspec, with the words that the field takes where it is about one of these."""
    said = str(error)
    found = _ENUM.match(said)
    if found is None:
        return said
    words = dict.fromkeys(w for ws in _words_of(Processing, found[3], set()) for w in ws)
    return f"{said}; it takes {', '.join(map(repr, words))}" if words else said


def _words_of(kind: Any, field: str, seen: set[Any]) -> Iterator[tuple[Any, ...]]:
    """The literals of each field of this name, in a struct and all that it is made of."""
    for part in get_args(kind) if get_origin(kind) is not Literal else ():
        yield from _words_of(part, field, seen)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in seen:
        return
    seen.add(kind)
    for each in msgspec.structs.fields(kind):
        if each.name == field and get_origin(each.type) is Literal:
            yield get_args(each.type)
        yield from _words_of(each.type, field, seen)
