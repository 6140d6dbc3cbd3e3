"""Tensors of the protocol: named arrays, as JSON numbers or as raw little-endian bytes."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

#: The protocol's words for element types, and ours. BF16 has no numpy dtype and is refused.
DATATYPES: dict[str, str] = {
    "BOOL": "bool",
    **{name.upper(): name for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BYTES": "string",
}
_WORDS = {ours: word for word, ours in DATATYPES.items()}

#: No tensor of a real model has more axes; a thousand of size 1 cost time in every layer below.
_MOST_AXES = 8
_LENGTH = struct.Struct("<I")


class BadMessage(ValueError):
    """What came is not a message of the protocol; the text says what is wrong, for the sender."""


@dataclass(frozen=True)
class Tensor:
    """One named tensor.

    Attributes:
        name: Of the model's input or output.
        array: Numbers of the tensor's dtype; for ``string`` an object array of ``bytes``.
    """

    name: str
    array: np.ndarray

    @property
    def datatype(self) -> str:
        """The protocol's word for the element type."""
        return datatype_of(self.array.dtype)


def datatype_of(dtype: np.dtype[Any] | str) -> str:
    """The protocol's word for a numpy dtype, or for one of our own words ("string").

    Raises:
        ValueError: the protocol has none.
    """
    if dtype == "string" or (not isinstance(dtype, str) and dtype.kind == "O"):
        return "BYTES"
    word = _WORDS.get(str(np.dtype(dtype)))
    if word is None:
        raise ValueError(f"the protocol has no word for {dtype}")
    return word


def check_shape(shape: Sequence[int], most: int) -> int:
    """The number of elements of a shape that a stranger gave.

    Raises:
        BadMessage: too many axes, a negative size, or more than ``most`` elements.
    """
    if len(shape) > _MOST_AXES:
        raise BadMessage(f"{len(shape)} axes where at most {_MOST_AXES} make sense")
    if any(size < 0 for size in shape):
        raise BadMessage("a negative size in a shape")
    count = math.prod(shape)
    if count > most or any(size > most for size in shape):
        raise BadMessage(f"a shape of more elements than the {most} that can be taken here")
    return count


def from_bytes(data: memoryview, datatype: str, shape: Sequence[int], most: int) -> np.ndarray:
    """An array out of raw little-endian bytes; it shares their memory where that is aligned.

    Raises:
        BadMessage: the bytes are not exactly as many as the shape needs.
    """
    dtype = _dtype(datatype)
    count = check_shape(shape, most)
    if dtype == "string":
        return _strings(data, count).reshape(shape)
    held = np.dtype(dtype).newbyteorder("<")
    if data.nbytes != count * held.itemsize:
        raise BadMessage(
            f"{data.nbytes} bytes where its shape and datatype need {count * held.itemsize}"
        )
    if dtype == "bool" and count and np.frombuffer(data, np.uint8).max() > 1:
        raise BadMessage("a BOOL that is neither 0 nor 1")
    array = np.frombuffer(data, held).reshape(shape).astype(dtype, copy=False)
    return np.require(array, requirements=["A", "C"])


def _strings(data: memoryview, count: int) -> np.ndarray:
    """Elements that each have four bytes of length before them."""
    if count * _LENGTH.size > data.nbytes:
        raise BadMessage(f"{data.nbytes} bytes cannot hold {count} BYTES elements")
    found = np.empty(count, object)
    at = 0
    for i in range(count):
        if at + _LENGTH.size > data.nbytes:
            raise BadMessage(f"BYTES element {i} has no length")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > data.nbytes - at:
            raise BadMessage(f"BYTES element {i} says it is longer than what is left")
        found[i] = bytes(data[at : at + length])
        at += length
    if at != data.nbytes:
        raise BadMessage(f"{data.nbytes - at} bytes after the last BYTES element")
    return found


def to_bytes(array: np.ndarray) -> bytes:
    """An array as raw little-endian bytes, as `from_bytes` reads them."""
    if array.dtype.kind == "O":
        return b"".join(_LENGTH.pack(len(item)) + item for item in array.reshape(-1))
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def from_json(data: msgspec.Raw, datatype: str, shape: Sequence[int], most: int) -> np.ndarray:
    """An array out of a JSON list, flat or nested as its shape is.

    The commas are counted before a list is made: a list that is longer than its shape says costs no
    memory.

    Raises:
        BadMessage: numbers of another kind, out of range, or not as many as the shape says.
    """
    dtype = _dtype(datatype)
    count = check_shape(shape, most)
    text = bytes(data)
    if dtype != "string" and text.count(b",") != max(0, count - 1):
        raise BadMessage(f"its data is not the {count} elements that its shape says")
    values = _list(text, dtype, len(shape))
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            array = _object(values) if dtype == "string" else np.array(values, dtype)
    except (OverflowError, ValueError) as error:
        raise BadMessage(f"its data does not make an array of {datatype}") from error
    if array.shape != tuple(shape) and array.shape != (count,):
        raise BadMessage(f"its data has the shape {list(array.shape)}, not {list(shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadMessage(f"a number that {datatype} cannot hold")
    return array.reshape(shape)


def _list(text: bytes, dtype: str, axes: int) -> Any:
    """Decode a flat list, or else one as deep as the shape."""
    last: Exception | None = None
    for depth in (1, axes) if axes > 1 else (1,):
        try:
            return _decoder(dtype, depth).decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            last = error
    raise BadMessage(
        "its data is neither a flat list nor a list as deep as its shape, of its kind"
    ) from last


@functools.lru_cache(maxsize=64)
def _decoder(dtype: str, depth: int) -> msgspec.json.Decoder[Any]:
    kinds: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": float}
    made: Any = str if dtype == "string" else kinds[np.dtype(dtype).kind]
    for _ in range(depth):
        made = list[made]
    return msgspec.json.Decoder(made)


def _object(values: Any) -> np.ndarray:
    """Strings, flat or nested, as an object array of UTF-8 bytes."""
    flat: list[Any] = values
    shape: list[int] = [len(values)]
    while flat and isinstance(flat[0], list):
        sizes = {len(row) for row in flat}
        if len(sizes) != 1:
            raise ValueError("rows of different length")
        shape.append(sizes.pop())
        flat = [item for row in flat for item in row]
    array = np.empty(len(flat), object)
    array[:] = [item.encode("utf-8") for item in flat]
    return array.reshape(shape)


def _dtype(datatype: str) -> str:
    if datatype not in DATATYPES:
        raise BadMessage(f"datatype {datatype[:20]!r}, which is none of {', '.join(DATATYPES)}")
    return DATATYPES[datatype]
