"""The usual JSON request, read in one pass: its tensors are flat lists of floats.

A JSON of numbers is large, and scanning it twice costs as much as reading it. Where simdjson is
installed it reads them (`edgeserve.oip.fast_json`), else msgspec does. Whatever is unusual is left
to the strict way, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from edgeserve.oip import fast_json
from edgeserve.oip.tensors import BadMessage, Tensor, check_shape

_FLOATS = {"FP32": np.float32, "FP64": np.float64}
#: Bytes of JSON an element may take, and the rest of a message: a body that is much longer than the
#: model's inputs could be is not tried, since lists of numbers take many times its memory.
_BYTES, _REST = 32, 1 << 16


class _FlatTensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: list[float] | None = None
    numbers: Any = None


class OutputRequest(msgspec.Struct):
    """An output that a request asks for."""

    name: str
    parameters: dict[str, Any] | None = None


class FlatRequest(msgspec.Struct):
    """A request, its ``tensors`` made of ``inputs``."""

    inputs: list[_FlatTensor]
    id: str = ""
    parameters: dict[str, Any] | None = None
    outputs: list[OutputRequest] | None = None
    tensors: tuple[Any, ...] = ()


_DECODER = msgspec.json.Decoder(FlatRequest)


def read_flat(body: bytes, most: Mapping[str, int]) -> FlatRequest | None:
    """A request of flat lists of floats in which nothing is wrong; None: it is none such.

    Args:
        body: All JSON.
        most: Largest number of elements by input name.
    """
    if len(body) > _BYTES * sum(most.values()) + _REST:
        return None
    request = _by_simd(body) or _by_msgspec(body)
    if request is None:
        return None
    names = {head.name for head in request.inputs}
    found = [_tensor(head, most) for head in request.inputs]
    if not found or len(names) < len(found) or request.tensors or any(t is None for t in found):
        return None
    request.tensors = tuple(found)
    return request


def _by_msgspec(body: bytes) -> FlatRequest | None:
    try:
        request = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return None if any(head.numbers is not None for head in request.inputs) else request


def _by_simd(body: bytes) -> FlatRequest | None:
    found = fast_json.parse_request(body)
    if found is None:
        return None
    try:
        request = msgspec.convert(found.rest | {"inputs": found.inputs}, FlatRequest)
    except msgspec.ValidationError:
        return None
    for head, numbers in zip(request.inputs, found.numbers, strict=True):
        if head.numbers is not None:
            return None
        head.numbers = numbers
    return request


def _tensor(head: _FlatTensor, most: Mapping[str, int]) -> Tensor | None:
    dtype, limit = _FLOATS.get(head.datatype), most.get(head.name)
    data: Any = head.data if head.numbers is None else head.numbers
    if dtype is None or limit is None or data is None or head.parameters:
        return None
    try:
        count = check_shape(head.shape, limit)
    except BadMessage:
        return None
    if count != len(data):
        return None
    with np.errstate(over="ignore"):  # what becomes infinite is left to the strict way
        array = data.astype(dtype) if head.numbers is not None else np.fromiter(data, dtype, count)
    return Tensor(head.name, array.reshape(head.shape)) if np.isfinite(array).all() else None
