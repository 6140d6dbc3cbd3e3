"""What every value has in common: frozen, strict about unknown fields, and a JSON round trip.

Law, for every value ``v`` of a type ``T`` below: ``decode(encode(v), T) == v``, and
``encode(decode(b, T)) == b`` for any ``b`` that `encode` wrote.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

__all__ = [
    "UNSET",
    "WORD",
    "Number",
    "UnsetType",
    "Value",
    "check_word",
    "decode",
    "encode",
    "number",
    "or_default",
    "plain",
]

#: A measured figure. JSON has no NaN or infinity, so those are the strings "nan", "inf" and "-inf".
Number = float | Literal["nan", "inf", "-inf"]

#: A format or precision, as a pattern. No hyphen: ``{format}-{precision}`` names an artifact and
#: has to come apart again. The group before the end is for Python, whose ``$`` also matches before
#: a last line break.
WORD = r"^[a-z][a-z0-9_]{0,31}(?!\n)$"

T = TypeVar("T")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all values: immutable, unknown fields refused. Build them by keyword.

    A subclass checks itself in ``__post_init__`` by raising ``ValueError``; msgspec turns that into
    a `msgspec.ValidationError` that names the JSON path when the value is being decoded.
    """


def check_word(field: str, word: str) -> None:
    """Raise ValueError unless ``word`` is well formed as a format or precision."""
    if not re.search(WORD, word):
        raise ValueError(
            f"{field} {word!r}: wanted up to 32 lower-case letters, digits and underscores, "
            "a letter first"
        )


def or_default(value: T | UnsetType, default: T) -> T:
    """The value of an optional field, or ``default`` where the JSON does not hold the field.

    A field added after its type was first written has the default `UNSET`: where it is absent it
    is not written either, so documents that do not use it keep their bytes.
    """
    return default if isinstance(value, UnsetType) else value


def number(x: float) -> Number:
    """Make a JSON-safe `Number` of any float."""
    x = float(x)
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return x


def plain(x: Number) -> float:
    """Undo `number`."""
    return float(x)


def _to_json(value: object) -> object:
    if isinstance(value, np.ndarray):
        listed = value.tolist()
        finite = value.dtype.kind != "f" or bool(np.isfinite(value).all())
        return listed if finite else _spelled(listed)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, msgspec.Raw):  # a worker's request, encoded before
        return msgspec.json.decode(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _spelled(value: Any) -> Any:
    """Nested lists of floats, each a `Number`."""
    return [_spelled(item) for item in value] if isinstance(value, list) else number(value)


def _from_json(type_: type, value: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, np.ndarray):
        array = np.asarray(value)
        return array if array.dtype.kind in "iuf" else np.asarray(_numbers(value), np.float64)
    raise NotImplementedError(f"{type_!r} cannot be read from JSON")


def _numbers(value: Any) -> Any:
    """Undo `_spelled`; numpy itself would read "1" as 1 and null as nan."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if value in ("nan", "inf", "-inf") or type(value) in (int, float):
        return float(value)
    raise ValueError(f"an array holds {value!r:.40}, which is not a number")


def _check_finite(value: Any) -> None:
    """Refuse a float that JSON cannot write, in what `msgspec.to_builtins` gave."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a field holds {value}, which JSON cannot write")
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            _check_finite(item)


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic")


def encode(value: object) -> bytes:
    """Encode a value as compact JSON in UTF-8, dictionary keys sorted, fields in declared order.

    Raises:
        ValueError: a float is NaN or infinite where the type is not `Number`.
    """
    data = _ENCODER.encode(value)
    if b"null" in data:  # which may stand for None, or for a float that is not finite
        _check_finite(msgspec.to_builtins(value, enc_hook=_to_json))
    return data


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode strict JSON as ``type_``.

    Raises:
        msgspec.ValidationError: the JSON does not fit the type; the message holds the path.
        msgspec.DecodeError: the bytes are not JSON.
    """
    return msgspec.json.decode(data, type=type_, dec_hook=_from_json)
