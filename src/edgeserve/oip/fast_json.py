"""Numbers as JSON through orjson and simdjson, where those are installed: arrays, not objects.

150,528 floats are as many Python objects first, and a text of three megabytes after. orjson
writes them from the array, in half the time and half as long: as few digits as give the same
float32. simdjson reads the usual request into an array at once, in half the time. Whatever is
not plainly the usual request is left to the ordinary reader, which is stricter and says what is
wrong.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import msgspec
import numpy as np


def encode_numbers(flat: np.ndarray) -> list[Any] | msgspec.Raw:
    """What stands for finite numbers in a message that msgspec writes.

    Args:
        flat: Bool, whole or floating-point numbers, [n]; NaN and infinity would become ``null``.
    """
    library = _orjson()
    if library is None or not flat.dtype.isnative:
        listed: list[Any] = flat.tolist()
        return listed
    return msgspec.Raw(
        library.dumps(np.ascontiguousarray(flat), option=library.OPT_SERIALIZE_NUMPY)
    )


@functools.cache
def _orjson() -> Any:
    try:
        import orjson
    except ImportError:
        return None
    return orjson


#: A parser keeps memory of some six times the longest text that it has read.
_MOST = 8 << 20
#: Nothing shorter is worth the way through another library.
_LEAST = 1 << 10
_LOCAL = threading.local()


class ParsedRequest(msgspec.Struct):
    """What a request says, its numbers apart: each input's fields but ``data``, and its data."""

    inputs: list[dict[str, Any]]
    numbers: list[np.ndarray]
    rest: dict[str, Any]


def parse_request(body: bytes) -> ParsedRequest | None:
    """A request whose inputs are flat lists of numbers (float64); None: left to others."""
    if not _LEAST <= len(body) <= _MOST or not body.startswith(b"{"):
        return None
    library = _simdjson()
    if library is None:
        return None
    parser = getattr(_LOCAL, "parser", None)
    if parser is None:
        parser = _LOCAL.parser = library.Parser()
    try:
        # What the parser gives points into it, and must be gone before it reads the next.
        return _read(parser.parse(body), body, library)
    except (ValueError, TypeError, LookupError):
        return None
    except RuntimeError:  # a number beyond 64 bits; or something still points into the parser
        _LOCAL.parser = None
        return None


@functools.cache
def _simdjson() -> Any:
    try:
        import simdjson
    except ImportError:
        return None
    return simdjson


def _read(root: Any, body: bytes, library: Any) -> ParsedRequest | None:
    rest = _fields(root, "inputs", library)
    if rest is None or not isinstance(root["inputs"], library.Array):
        return None
    inputs, numbers = [], []
    for one in root["inputs"]:
        fields = _fields(one, "data", library)
        if fields is None or not isinstance(one["data"], library.Array):
            return None
        inputs.append(fields)
        numbers.append(np.frombuffer(one["data"].as_buffer(of_type="d")))
    # The library flattens nested lists: there are none if each bracket is accounted for.
    if _brackets(body, 2 + 2 * len(inputs) + ("outputs" in rest)):
        return None
    return ParsedRequest(inputs, numbers, rest)


def _brackets(body: bytes, count: int) -> bool:
    """Whether there are as many; looking for the next one is ten times as quick as counting."""
    at = -1
    for _ in range(count):
        at = body.find(b"[", at + 1)
        if at < 0:
            return False
    return True


def _fields(one: Any, but: str, library: Any) -> dict[str, Any] | None:
    """An object's fields but one, which must be there; None: one is named twice, or no object."""
    if not isinstance(one, library.Object):
        return None
    names = list(one.keys())
    if but not in names or len(set(names)) < len(names):
        return None
    return {name: _plain(one[name], library) for name in names if name != but}


def _plain(value: Any, library: Any) -> Any:
    if isinstance(value, library.Object):
        return value.as_dict()
    return value.as_list() if isinstance(value, library.Array) else value
