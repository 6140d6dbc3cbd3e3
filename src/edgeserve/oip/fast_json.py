"""The usual JSON request, read in one pass: its tensors are flat lists of floats.

A JSON of numbers is large, and scanning it twice costs as much as reading it. Where simdjson is
installed it reads them into an array at once, in half the time; else msgspec does. Whatever is
unusual is left to the strict way, which also says what is wrong.

For answers, 150,528 floats are as many Python objects first, and a text of three megabytes after.
Where orjson is installed it writes them from the array, in half the time and half as long: as few
digits as give the same float32.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from edgeserve.oip.tensors import BadMessage, Tensor, check_shape


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
_MOST = 4 << 20
#: Nothing shorter is worth the way through another library.
_LEAST = 1 << 10
_LOCAL = threading.local()


class ParsedRequest(msgspec.Struct):
    """What a request says, its numbers apart: each input's fields but ``data``, and its data."""

    inputs: list[dict[str, Any]]
    numbers: list[np.ndarray]
    rest: dict[str, Any]


def parse_request(body: bytes | bytearray, values: int) -> ParsedRequest | None:
    """A request whose inputs are flat lists of numbers (float64); None: left to others.

    Args:
        body: All JSON.
        values: In it at most.
    """
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
        return _read(parser.parse(body), body, values, library)
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


def _read(root: Any, body: bytes | bytearray, values: int, library: Any) -> ParsedRequest | None:
    found = root["inputs"]
    if not isinstance(found, library.Array) or len(found) > _MOST_INPUTS:
        return None
    numbers = []
    for one in found:
        if not isinstance(one["data"], library.Array):
            return None
        numbers.append(np.frombuffer(one["data"].as_buffer(of_type="d")))
    # Only numbers may be many: the rest becomes Python's objects.
    if values > sum(map(len, numbers)) + _MOST_REST:
        return None
    rest = _fields(root, "inputs", library)
    inputs = [_fields(one, "data", library) for one in found]
    if rest is None or any(fields is None for fields in inputs):
        return None
    # The library flattens nested lists: there are none if each bracket is accounted for.
    if _brackets(body, 2 + 2 * len(inputs) + ("outputs" in rest)):
        return None
    return ParsedRequest([fields for fields in inputs if fields is not None], numbers, rest)


def _brackets(body: bytes | bytearray, count: int) -> bool:
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


_FLOATS = {"FP32": np.float32, "FP64": np.float64}
#: Bytes of JSON an element may take, and the rest of a message: a body that is much longer than the
#: model's inputs could be is not tried, since lists of numbers take many times its memory.
_BYTES, _REST = 32, 1 << 16
#: Inputs of a request, and its values beside their numbers: more is left to the strict way.
_MOST_INPUTS, _MOST_REST = 256, 1 << 12
#: Bytes of a field that holds whatever its sender likes.
_MOST_FREE = 1 << 13
#: Stands for a field that is not there.
NOTHING = msgspec.Raw(b"")


def free_fields(text: msgspec.Raw) -> dict[str, Any]:
    """The object in a field of free form; an empty one where there is none, or ``null``.

    Raises:
        BadMessage: something else, or more than anybody has to say.
    """
    if not text:
        return {}
    if memoryview(text).nbytes > _MOST_FREE:
        raise BadMessage(f"parameters of more than {_MOST_FREE} bytes")
    try:
        return msgspec.json.decode(text, type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadMessage(f"not the JSON of the protocol: {str(error)[:200]}") from error


class _FlatTensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: msgspec.Raw = NOTHING
    data: list[float] | None = None
    numbers: Any = None


class OutputRequest(msgspec.Struct):
    """An output that a request asks for."""

    name: str
    parameters: msgspec.Raw = NOTHING


class FlatRequest(msgspec.Struct):
    """A request, its ``tensors`` made of ``inputs``."""

    inputs: list[_FlatTensor]
    id: str = ""
    parameters: msgspec.Raw = NOTHING
    outputs: list[OutputRequest] | None = None
    tensors: tuple[Any, ...] = ()


_DECODER = msgspec.json.Decoder(FlatRequest)


def read_flat(body: bytes | bytearray, most: Mapping[str, int], values: int) -> FlatRequest | None:
    """A request of flat lists of floats in which nothing is wrong; None: it is none such.

    Args:
        body: All JSON.
        most: Largest number of elements by input name.
        values: In it at most.
    """
    if len(body) > _BYTES * sum(most.values()) + _REST:
        return None
    request = _by_simd(body, values) or _by_msgspec(body)
    if request is None:
        return None
    names = {head.name for head in request.inputs}
    found = [_tensor(head, most) for head in request.inputs]
    if not found or len(names) < len(found) or request.tensors or any(t is None for t in found):
        return None
    request.tensors = tuple(found)
    return request


def _by_msgspec(body: bytes | bytearray) -> FlatRequest | None:
    try:
        request = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return None if any(head.numbers is not None for head in request.inputs) else request


def _by_simd(body: bytes | bytearray, values: int) -> FlatRequest | None:
    found = parse_request(body, values)
    if found is None:
        return None
    try:
        request = _DECODER.decode(msgspec.json.encode(found.rest | {"inputs": found.inputs}))
    except (msgspec.MsgspecError, UnicodeError):
        return None
    for head, numbers in zip(request.inputs, found.numbers, strict=True):
        if head.numbers is not None:
            return None
        head.numbers = numbers
    return request


def _tensor(head: _FlatTensor, most: Mapping[str, int]) -> Tensor | None:
    dtype, limit = _FLOATS.get(head.datatype), most.get(head.name)
    data: Any = head.data if head.numbers is None else head.numbers
    if dtype is None or limit is None or data is None:
        return None
    try:
        if free_fields(head.parameters):
            return None
        count = check_shape(head.shape, limit)
    except BadMessage:
        return None
    if count != len(data):
        return None
    with np.errstate(over="ignore"):  # what becomes infinite is left to the strict way
        array = data.astype(dtype) if head.numbers is not None else np.fromiter(data, dtype, count)
    return Tensor(head.name, array.reshape(head.shape)) if np.isfinite(array).all() else None
