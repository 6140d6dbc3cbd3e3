"""The options that a factory may return, checked: names, dynamic shapes, task, processing, labels.

Among them assets: files that a model's processing reads at run time, such as a tokenizer. A
factory gives them by name and path; a step then refers to the name, and the size and hash that
make the file part of the model's identity are filled in. Labels must not hold control
characters; equal and empty ones are noted. An error about a word that a field does not take
lists those that it takes.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from edgeserve.errors import ConvertError, first_control
from edgeserve.files import describe, sha256_bytes, write_atomic
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import Processing
from edgeserve.types.vocabulary import TASKS, Task

_ENUM = re.compile(r"Invalid enum value '(.*)' - at `(.*)\.(\w+)`")


def describe_invalid_value(error: Exception) -> str:
    """An error of msgspec, with the words that the field takes where it is about one of these."""
    message = str(error)
    found = _ENUM.match(message)
    if found is None:
        return message
    words = dict.fromkeys(w for ws in _literals_of(Processing, found[3], set()) for w in ws)
    return f"{message}; it takes {', '.join(map(repr, words))}" if words else message


def _literals_of(kind: Any, field: str, seen: set[Any]) -> Iterator[tuple[Any, ...]]:
    """The literals of each field of this name, in a struct and all that it is made of."""
    for part in get_args(kind) if get_origin(kind) is not Literal else ():
        yield from _literals_of(part, field, seen)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in seen:
        return
    seen.add(kind)
    for each in msgspec.structs.fields(kind):
        if each.name == field and get_origin(each.type) is Literal:
            yield get_args(each.type)
        yield from _literals_of(each.type, field, seen)


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """What a report should say of class names: which are equal, and which are empty.

    Both are found in sound models (ImageNet has two classes "crane"), so neither is refused.

    Raises:
        ConvertError: EDGE-CONVERT-084, one holds a control character.
    """
    for index, label in enumerate(labels):
        if (control := first_control(label)) is not None:
            where = f"label {index}"
            wanted = "text that can be shown in a line"
            got = f"{label[:60]!a}, with {control}"
            hint = "take it out where the labels are made: label.strip(), or splitlines()"
            raise ConvertError("EDGE-CONVERT-084", where, wanted=wanted, got=got, hint=hint)
    notes = []
    if twice := [label for label, n in Counter(labels).items() if n > 1 and label]:
        shown = ", ".join(map(repr, twice[:3])) + (", ..." if len(twice) > 3 else "")
        notes.append(f"labels that several classes share: {shown}")
    if empty := sum(not label.strip() for label in labels):
        notes.append(f"{empty} of {len(labels)} labels are empty")
    return tuple(notes)


#: Folder of all assets, in exports, workspaces and bundles.
ASSETS_FOLDER = "assets/"


def _read_assets(value: object) -> dict[str, bytes]:
    """Assets by name, from a dict of names and paths (or bytes).

    Raises:
        ValueError: it is no such dict, or a name is not ``assets/...``.
        OSError: a file cannot be read.
    """
    if not isinstance(value, Mapping):
        raise ValueError(type(value).__name__)
    read: dict[str, bytes] = {}
    for name, held in value.items():
        data = held if isinstance(held, bytes) else _read_asset(held)
        entry = _asset_entry(str(name), data)  # refuses names that no bundle may hold
        if not entry.path.startswith(ASSETS_FOLDER):
            raise ValueError(f"the name {name!r}, which does not start with {ASSETS_FOLDER}")
        read[entry.path] = data
    return read


def _read_asset(path: object) -> bytes:
    if not isinstance(path, str | Path):
        raise ValueError(f"a {type(path).__name__} in a path's place")
    return Path(path).read_bytes()


def _asset_entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(path=name, size=len(data), sha256=sha256_bytes(data))


def resolve_assets(processing: Any, assets: Mapping[str, bytes]) -> Any:
    """A processing as a dict, with names of assets replaced by their entries."""
    if isinstance(processing, Mapping):
        return {
            key: _resolve_asset(value, assets)
            if key == "tokenizer"
            else resolve_assets(value, assets)
            for key, value in processing.items()
        }
    if isinstance(processing, list | tuple):
        return [resolve_assets(item, assets) for item in processing]
    return processing


def _resolve_asset(value: Any, assets: Mapping[str, bytes]) -> Any:
    if not isinstance(value, str):
        return value
    if value not in assets:
        raise ValueError(f"no asset {value!r} among {sorted(assets)}")
    return msgspec.to_builtins(_asset_entry(value, assets[value]))


def unused_assets(processing: Processing, assets: Mapping[str, bytes]) -> list[str]:
    """Assets that no step names: they would lie in every package for nothing."""
    used = {entry.path for entry in processing.assets}
    return sorted(set(assets) - used)


def write_assets(assets: Mapping[str, bytes], out: Path) -> tuple[FileEntry, ...]:
    """Write assets below ``out``; their entries, sorted by path."""
    for name, data in assets.items():
        write_atomic(out / name, data)
    return tuple(describe(out, name) for name in sorted(assets))


#: Every key that a factory's third value may have.
OPTION_KEYS = tuple(
    "assets dynamic_shapes fields input_names labels output_names processing reference task".split()
)

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class FactoryOptions:
    """A factory's options; see docs/guide/sources.md for what each means."""

    dynamic_shapes: object = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    task: Task = "tensors"
    processing: Processing = field(default_factory=Processing)
    labels: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    reference: str | None = None
    assets: Mapping[str, bytes] = field(default_factory=dict)


def read_options(given: Mapping[str, Any]) -> FactoryOptions:
    """Check a factory's third value.

    Raises:
        ConvertError: EDGE-CONVERT-010, naming the key.
    """
    for key in given:
        if key not in OPTION_KEYS:
            close = difflib.get_close_matches(str(key), OPTION_KEYS, 1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"use any of {', '.join(OPTION_KEYS)}"
            )
            raise _invalid_option("the options", f"keys among {list(OPTION_KEYS)}", repr(key), hint)
    assets = _assets("assets", given["assets"]) if given.get("assets") is not None else {}
    readers: dict[str, Callable[[str, Any], Any]] = {
        "assets": lambda *_: assets,
        "fields": _fields,
        **dict.fromkeys(("input_names", "labels", "output_names"), _names),
        "processing": lambda key, value: _processing(key, value, assets),
        "reference": _reference,
        "task": _task,
    }
    found: dict[str, Any] = {
        key: readers[key](key, value) if key in readers else value
        for key, value in given.items()
        if value is not None
    }
    options = FactoryOptions(**found)
    if spare := unused_assets(options.processing, assets):
        raise _invalid_option(
            "assets", "files that a step of the processing names", f"{spare}, named by none"
        )
    return options


def _names(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _invalid_option(key, "a list of names", type(value).__name__)
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise _invalid_option(key, "a list of names", f"{wrong[0]!r} in it")
    return tuple(value)


def _task(key: str, value: object) -> Task:
    if value not in TASKS:
        close = difflib.get_close_matches(str(value), TASKS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "leave it out, and callers get tensors"
        raise _invalid_option(key, f"one of {', '.join(TASKS)}", repr(value), hint)
    return str(value)


def _assets(key: str, value: object) -> dict[str, bytes]:
    try:
        return _read_assets(value)
    except (OSError, ValueError) as error:
        wanted = 'a dict of names and paths: {"assets/tokenizer.json": path}'
        hint = "open files relative to Path(__file__).parent"
        raise _invalid_option(key, wanted, str(error), hint) from error


def _processing(key: str, value: object, assets: Mapping[str, bytes]) -> Processing:
    if isinstance(value, Processing):
        return value
    if not isinstance(value, Mapping):
        raise _invalid_option(key, "a dict or a Processing", type(value).__name__)
    try:
        return msgspec.convert(resolve_assets(value, assets), Processing)
    except (msgspec.ValidationError, ValueError) as error:
        wanted, got = "steps as spec/processing.md has them", describe_invalid_value(error)
        hint = "see spec/processing.md for each step's fields"
        raise _invalid_option(key, wanted, got, hint) from error


def _fields(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise _invalid_option(key, "a dict from output name to what it holds", repr(value))
    return {str(name): word for name, word in value.items()}


def _reference(key: str, value: object) -> str:
    """``module:callable`` or an endpoint's address; a function is called by its module and name."""
    if callable(value):
        value = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    text = str(value)
    if _REFERENCE.fullmatch(text) or re.match(r"https?://\S+$", text):
        return text
    raise _invalid_option(key, '"package.module:callable" or an address', repr(value))


def _invalid_option(
    key: str, wanted: str, got: str, hint: str = "correct it in the factory"
) -> ConvertError:
    thing = f"option {key!r}" if key in OPTION_KEYS else key
    return ConvertError("EDGE-CONVERT-010", thing, wanted=wanted, got=got, hint=hint)
