"""What every value has in common: frozen, strict about unknown fields, and a JSON round trip.

Law, for every value ``v`` of a type ``T`` below: ``decode(encode(v), T) == v``, and
``encode(decode(b, T)) == b`` for any ``b`` that `encode` wrote.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

__all__ = ["Number", "Value", "decode", "encode", "number", "plain"]

#: A measured figure. JSON has no NaN or infinity, so those are the strings "nan", "inf" and "-inf".
Number = float | Literal["nan", "inf", "-inf"]

T = TypeVar("T")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all values: immutable, unknown fields refused. Build them by keyword.

    A subclass checks itself in ``__post_init__`` by raising ``ValueError``; msgspec turns that into
    a `msgspec.ValidationError` that names the JSON path when the value is being decoded.
    """


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
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _from_json(type_: type, value: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, np.ndarray):
        return np.asarray(value)
    raise NotImplementedError(f"{type_!r} cannot be read from JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic")


def encode(value: object) -> bytes:
    """Encode a value as compact JSON in UTF-8, dictionary keys sorted, fields in declared order.

    Raises:
        ValueError: a float is NaN or infinite where the type is not `Number`.
    """
    return _ENCODER.encode(value)


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode strict JSON as ``type_``.

    Raises:
        msgspec.ValidationError: the JSON does not fit the type; the message holds the path.
        msgspec.DecodeError: the bytes are not JSON.
    """
    return msgspec.json.decode(data, type=type_, dec_hook=_from_json)
