"""Codes and texts of errors: ``errors/*.json``."""

from __future__ import annotations

from typing import Any

from edgeserve.codes import catalogue
from edgeserve.errors import EdgeError

__all__ = ["check_code", "check_format"]

Json = dict[str, Any]


def _text(value: Any) -> str:
    """A text, or one that is put together of parts."""
    if isinstance(value, str):
        return value
    if "repeat" in value:
        part, times = value["repeat"]
        return str(part) * int(times)
    return "".join(map(_text, value["join"]))


def check_format(case: Json, *_: object) -> str | None:
    """An error's parts as its message, and as it is shown."""
    parts = {name: _text(value) for name, value in case["error"].items()}
    error = EdgeError(
        parts["code"], parts["thing"], wanted=parts["wanted"], got=parts["got"], hint=parts["hint"]
    )
    found = {"message": error.message, "shown": str(error)}
    wrong = [name for name, value in case["expected"].items() if found[name] != _text(value)]
    return f"{wrong[0]}: gave {found[wrong[0]]!a}" if wrong else None


def check_code(case: Json, *_: object) -> str | None:
    """The title of a code."""
    known = catalogue().get(case["id"])
    if known is None:
        return "is not known"
    return None if known.title == case["title"] else f"title: gave {known.title!r}"
