"""`Option`, and reading and checking options wherever they were typed: shell, TOML or Python.

The options themselves are defined in `edgeserve.types.options` and `edgeserve.serve.options`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from edgeserve.errors import UsageError

O = TypeVar("O")  # noqa: E741


class Option(NamedTuple):
    """What a field does not say itself of its option: name, type and default stand there.

    Attributes:
        help: One line for ``--help`` and the JSON Schema.
        flags: On the command line; empty: ``--`` and the field's name with hyphens.
        argument: Metavar of an argument by position; empty: an option.
        metavar: What stands for the value in ``--help``; empty: its type.
        path: A path: in ``edgeserve.toml`` relative to the file.
        repeat: Of a tuple: given once for each value, not with commas.
        choices: Gives the words that the value may be; None: any.
        minimum: Least number.
        seconds: A finite time above 0.
    """

    help: str
    flags: tuple[str, ...] = ()
    argument: str = ""
    metavar: str = ""
    path: bool = False
    repeat: bool = False
    choices: Callable[[], tuple[str, ...]] | None = None
    minimum: int | None = None
    seconds: bool = False


#: What people call a precision elsewhere.
_OTHER_WORDS = {"int8": "w8a8", "float32": "fp32", "float16": "fp16", "half": "fp16", "int4": "w4"}


def definitions(kind: type) -> Mapping[str, tuple[Any, Option]]:
    """Type and `Option` of each field of an options class, in order."""
    return _definitions(cast("Hashable", kind))


@cache
def _definitions(kind: Any) -> Mapping[str, tuple[Any, Option]]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        base, *marks = get_args(hints[field.name]) or (hints[field.name],)
        options = [mark for mark in marks if isinstance(mark, Option)]
        if options:
            found[field.name] = (base, options[0])
    return found


def is_list(type_: Any) -> bool:
    """Whether a field holds several values."""
    return any(get_origin(part) is tuple for part in (type_, *get_args(type_)))


def flag(kind: type, name: str) -> str:
    """How an option is called on the command line: ``--all-or-nothing``, or ``OUT``."""
    option = definitions(kind)[name][1]
    return option.argument or (option.flags or (f"--{name.replace('_', '-')}",))[-1]


def read_options(kind: type[O], values: Mapping[str, Any]) -> O:
    """Options from values by name; paths may be objects, lists may be text with commas.

    Raises:
        ValueError: a name that is no option (with the one that may be meant), a missing one, or a
            value of another type.
    """
    import msgspec

    known = definitions(kind)
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ValueError(f"unknown option {name!r}" + (f": {near[0]!r}?" if near else ""))
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if is_list(known[name][0]) and isinstance(value, str):
            value = split_list(value)
        if value is not None:
            plain[name] = value
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def narrow(kind: type[O], options: Any) -> O:
    """The part of some options that one of their base classes holds."""
    return kind(**{name: getattr(options, name) for name in definitions(kind)})


def split_list(text: str) -> tuple[str, ...]:
    """The words of a text with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def check_choice(
    option: str, value: str, allowed: tuple[str, ...], spellings: tuple[str, ...] = ()
) -> str:
    """``value`` if it is one of ``allowed``.

    Raises:
        UsageError: EDGE-USAGE-001, naming what is allowed and what may have been meant
            (``spellings`` are further words that would have been understood).
    """
    if value in allowed:
        return value
    near = difflib.get_close_matches(value.lower(), (*allowed, *spellings), n=1)
    meant = _OTHER_WORDS.get(value.lower()) or (near[0] if near else None)
    wanted = f"one of {', '.join(allowed)}"
    hint = f"did you mean {meant}?" if meant else f"write {option} {allowed[0]}, for example"
    raise UsageError("EDGE-USAGE-001", option, wanted=wanted, got=repr(value), hint=hint)


def check_options(options: Any) -> None:
    """Check each value by its `Option`.

    An empty text is refused: it would be read as "not given" or "here".

    Raises:
        UsageError: EDGE-USAGE-001 not one of the choices, -005 empty, or not the number it must be.
    """
    kind = type(options)
    given = {name: getattr(options, name) for name in definitions(kind)}
    for name, value in given.items():
        if value in ("", ()):
            called = flag(kind, name)
            hint = f"give {called} a value, or leave it out if it need not be there"
            raise value_error(called, "a value", "an empty one", hint)
    for name, value in given.items():
        option, called = definitions(kind)[name][1], flag(kind, name)
        if value is None:
            continue
        if option.choices:
            check_choice(called, value, option.choices())
        if option.minimum is not None and value < option.minimum:
            hint = f"give {called} a larger number, or leave it out"
            raise value_error(called, f"a number from {option.minimum} up", str(value), hint)
        if option.seconds and not (value > 0 and math.isfinite(value)):
            hint = f"give {called} a number like 600, or leave it out"
            raise value_error(called, "a number of seconds above 0", str(value), hint)


def value_error(called: str, wanted: str, got: str, hint: str) -> UsageError:
    """The error for an option whose value cannot be used."""
    return UsageError("EDGE-USAGE-005", called, wanted=wanted, got=got, hint=hint)
