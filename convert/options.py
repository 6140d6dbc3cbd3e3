"""The options a factory may return, checked: names, dynamic shapes, task, processing, labels."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from edgeserve.convert.allowed import with_allowed
from edgeserve.convert.assets import named_entries, read_assets, unnamed
from edgeserve.errors import ConvertError
from edgeserve.types.processing import Processing
from edgeserve.types.words import TASKS, Task

__all__ = ["KEYS", "Options", "read_options"]

#: Every key that a factory's third value may have.
KEYS = (
    "assets",
    "dynamic_shapes",
    "fields",
    "input_names",
    "labels",
    "output_names",
    "processing",
    "reference",
    "task",
)

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Options:
    """A factory's options; see docs/sources.md for what each means."""

    dynamic_shapes: object = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    task: Task = "tensors"
    processing: Processing = field(default_factory=Processing)
    labels: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    reference: str | None = None
    assets: Mapping[str, bytes] = field(default_factory=dict)


def read_options(given: Mapping[str, Any]) -> Options:
    """Check a factory's third value.

    Raises:
        ConvertError: EDGE-CONVERT-010, naming the key.
    """
    for key in given:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"use any of {', '.join(KEYS)}"
            raise _bad("the options", f"keys among {list(KEYS)}", repr(key), hint)
    assets = _assets("assets", given["assets"]) if given.get("assets") is not None else {}
    readers: dict[str, Callable[[str, Any], Any]] = {
        "assets": lambda *_: assets,
        "fields": _fields,
        "input_names": _names,
        "labels": _names,
        "output_names": _names,
        "processing": lambda key, value: _processing(key, value, assets),
        "reference": _reference,
        "task": _task,
    }
    found: dict[str, Any] = {
        key: readers[key](key, value) if key in readers else value
        for key, value in given.items()
        if value is not None
    }
    options = Options(**found)
    if spare := unnamed(options.processing, assets):
        raise _bad("assets", "files that a step of the processing names", f"{spare}, named by none")
    return options


def _names(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _bad(key, "a list of names", type(value).__name__)
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise _bad(key, "a list of names", f"{wrong[0]!r} in it")
    return tuple(value)


def _task(key: str, value: object) -> Task:
    if value not in TASKS:
        close = difflib.get_close_matches(str(value), TASKS, 1)
        raise _bad(
            key,
            f"one of {', '.join(TASKS)}",
            repr(value),
            f"did you mean {close[0]!r}?" if close else "leave it out, and callers get tensors",
        )
    return cast("Task", value)


def _assets(key: str, value: object) -> dict[str, bytes]:
    try:
        return read_assets(value)
    except (OSError, ValueError) as error:
        raise _bad(
            key,
            'a dict of names and paths: {"assets/tokenizer.json": path}',
            str(error),
            "open files relative to Path(__file__).parent",
        ) from error


def _processing(key: str, value: object, assets: Mapping[str, bytes]) -> Processing:
    if isinstance(value, Processing):
        return value
    if not isinstance(value, Mapping):
        raise _bad(key, "a dict or a Processing", type(value).__name__)
    try:
        return msgspec.convert(named_entries(value, assets), Processing)
    except (msgspec.ValidationError, ValueError) as error:
        raise _bad(
            key,
            "steps as docs/processing.md has them",
            with_allowed(error),
            "see docs/processing.md for each step's fields",
        ) from error


def _fields(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise _bad(key, "a dict from output name to what it holds", repr(value))
    return {str(name): word for name, word in value.items()}


def _reference(key: str, value: object) -> str:
    """``module:callable`` or an endpoint's address; a function is called by its module and name."""
    if callable(value):
        value = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    text = str(value)
    if _REFERENCE.fullmatch(text) or re.match(r"https?://\S+$", text):
        return text
    raise _bad(key, '"package.module:callable" or an address', repr(value))


def _bad(key: str, wanted: str, got: str, hint: str = "correct it in the factory") -> ConvertError:
    thing = f"option {key!r}" if key in KEYS else key
    return ConvertError("EDGE-CONVERT-010", thing, wanted=wanted, got=got, hint=hint)
