"""Messages of the protocol: a JSON object, and behind it the bytes of its binary tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np

from edgeserve.oip.fast_json import (
    NOTHING,
    FlatRequest,
    OutputRequest,
    encode_numbers,
    free_fields,
    read_flat,
)
from edgeserve.oip.tensors import BadMessage, Tensor, datatype_of, from_bytes, from_json, to_bytes

T = TypeVar("T")

#: More tensors than any model has.
_MOST_TENSORS = 256
#: Elements of one tensor, where the caller knows nothing closer: 4 GiB of float32.
_MOST = 1 << 30


class _TensorHead(msgspec.Struct, gc=False):
    name: str
    shape: list[int]
    datatype: str
    parameters: msgspec.Raw = NOTHING
    data: msgspec.Raw = NOTHING


class _RequestHead(msgspec.Struct):
    inputs: list[_TensorHead]
    id: str = ""
    parameters: msgspec.Raw = NOTHING
    outputs: list[OutputRequest] | None = None


class _ResponseHead(msgspec.Struct):
    outputs: list[_TensorHead]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: msgspec.Raw = NOTHING


@dataclass(frozen=True)
class RequestedOutput:
    """An output that is asked for, and whether it is to come in binary."""

    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    """A question to a model.

    Attributes:
        inputs: In the order of the message, names unique.
        id: The sender's own; comes back with the answer.
        wanted: Outputs asked for; empty: all of them.
        binary: Outputs come in binary where `wanted` says nothing else.
        parameters: As sent.
    """

    inputs: tuple[Tensor, ...]
    id: str = ""
    wanted: tuple[RequestedOutput, ...] = ()
    binary: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InferResponse:
    """A model's answer; ``parameters`` holds ``model_id`` where the server is edgeserve."""

    model: str
    version: str
    outputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


#: What one value of a JSON text takes at most once it is an object, bytes: a list in a list.
VALUE_BYTES = 80
#: A text up to this length is not counted. Values that a longer one may hold beside its inputs',
#: and objects: a text that is an input may be full of commas.
_SHORT, _FREE_VALUES, _MOST_OBJECTS = 1 << 16, 1 << 17, 1 << 16
_CHUNK = 1 << 16


def count_values(body: bytes | bytearray, head: int | None, most: Mapping[str, int]) -> int:
    """How many values the JSON of a request holds, at most: counted before one is made.

    Args:
        body: As `read_request`.
        head: Likewise.
        most: Largest number of elements by input name.

    Raises:
        BadMessage: more than a request to this model can hold.
    """
    length = len(body) if head is None else min(head, len(body))
    if length <= _SHORT:
        return 0
    limit = 2 * sum(most.values()) + _FREE_VALUES
    values = objects = 0
    for at in range(0, length, _CHUNK):
        piece = np.frombuffer(body, np.uint8, min(_CHUNK, length - at), at)
        opened, commas, lists = (
            int(np.count_nonzero(piece == mark)) for mark in (_BRACE, _COMMA, _BRACKET)
        )
        objects += opened
        values += opened + commas + lists
        if values > limit or objects > _MOST_OBJECTS:
            raise BadMessage("more values than the inputs of the model can hold")
    return values


_COMMA, _BRACKET, _BRACE = b",[{"


def read_request(
    body: bytes | bytearray,
    head: int | None,
    most: Mapping[str, int] | None = None,
    values: int | None = None,
) -> InferRequest:
    """Read an inference request.

    Args:
        body: JSON, then binary tensors.
        head: Bytes of JSON (the header Inference-Header-Content-Length); None: all of them.
        most: Largest number of elements by input name; an input that is not there is refused. None:
            no such limit, and any name.
        values: What `count_values` found; None: it is counted here, if ``most`` is known.

    Raises:
        BadMessage: the body is no request, or lies about a size.
    """
    if values is None and most is not None:
        values = count_values(body, head, most)
    if head is None and most is not None and (flat := read_flat(body, most, values or 0)):
        return _request(flat, flat.tensors)
    parsed, rest = _split(body, head, _REQUEST)
    if not parsed.inputs:
        raise BadMessage("a request without inputs")
    return _request(parsed, _tensors(parsed.inputs, rest, "input", most))


def _request(parsed: _RequestHead | FlatRequest, inputs: tuple[Tensor, ...]) -> InferRequest:
    asked = free_fields(parsed.parameters)
    binary = _flag(asked, "binary_data_output", False)
    outputs = parsed.outputs or ()
    if len(outputs) > _MOST_TENSORS:
        raise BadMessage(f"{len(outputs)} outputs")
    wanted = tuple(_wanted(output, binary) for output in outputs)
    _unique([output.name for output in wanted], "output")
    return InferRequest(inputs, parsed.id, wanted, binary, asked)


def read_response(body: bytes, head: int | None) -> InferResponse:
    """Read an inference response (as `read_request`).

    Raises:
        BadMessage: the body is no response, or lies about a size.
    """
    parsed, rest = _split(body, head, _RESPONSE)
    outputs = _tensors(parsed.outputs, rest, "output", None)
    return InferResponse(
        parsed.model_name,
        parsed.model_version or "",
        outputs,
        parsed.id or "",
        free_fields(parsed.parameters),
    )


def write_request(inputs: Sequence[Tensor], binary: bool = True) -> tuple[bytes, int | None]:
    """The body of a request and, where it holds binary tensors, the length of its JSON."""
    heads, blobs = _written(inputs, {tensor.name: binary for tensor in inputs})
    message: dict[str, Any] = {"inputs": heads}
    if binary:
        message["parameters"] = {"binary_data_output": True}
    return _joined(message, blobs)


def write_response(answer: InferResponse, binary: Mapping[str, bool]) -> tuple[bytes, int | None]:
    """The body of a response and, where it holds binary tensors, the length of its JSON.

    Args:
        answer: What to write.
        binary: By output name, whether it goes in binary.

    Raises:
        BadMessage: an output holds NaN or infinity, which JSON has no word for.
    """
    heads, blobs = _written(answer.outputs, binary)
    message: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version}
    if answer.id:
        message["id"] = answer.id
    if answer.parameters:
        message["parameters"] = dict(answer.parameters)
    return _joined(message | {"outputs": heads}, blobs)


_REQUEST = msgspec.json.Decoder(_RequestHead)
_RESPONSE = msgspec.json.Decoder(_ResponseHead)


def _split(
    body: bytes | bytearray, head: int | None, decoder: msgspec.json.Decoder[T]
) -> tuple[T, memoryview]:
    whole = memoryview(body)
    if head is not None and not 0 < head <= len(body):
        raise BadMessage("its JSON is said to be longer than the message, or empty")
    text = whole if head is None else whole[:head]
    try:
        return decoder.decode(text), whole[len(text) :]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"not the JSON of the protocol: {str(error)[:200]}") from error
    except RecursionError:
        raise BadMessage("JSON that is nested too deeply") from None


def _tensors(
    heads: Sequence[_TensorHead], rest: memoryview, kind: str, most: Mapping[str, int] | None
) -> tuple[Tensor, ...]:
    if len(heads) > _MOST_TENSORS:
        raise BadMessage(f"{len(heads)} {kind}s")
    _unique([head.name for head in heads], kind)
    sizes = [_binary_size(head) for head in heads]
    if sum(size or 0 for size in sizes) != len(rest):
        raise BadMessage(
            f"{len(rest)} bytes of binary data where its {kind}s say {sum(s or 0 for s in sizes)}"
        )
    found, at = [], 0
    for head, size in zip(heads, sizes, strict=True):
        piece = rest[at : at + (size or 0)]
        at += size or 0
        found.append(_tensor(head, None if size is None else piece, kind, most))
    return tuple(found)


def _tensor(
    head: _TensorHead, piece: memoryview | None, kind: str, most: Mapping[str, int] | None
) -> Tensor:
    if most is not None and head.name not in most:
        raise BadMessage(f"{kind} {head.name[:60]!r}, which the model does not have")
    limit = _MOST if most is None else most[head.name]
    try:
        if piece is not None:
            return Tensor(head.name, from_bytes(piece, head.datatype, head.shape, limit))
        if not head.data:
            raise BadMessage("there is no data")
        return Tensor(head.name, from_json(head.data, head.datatype, head.shape, limit))
    except BadMessage as error:
        raise BadMessage(f"{kind} {head.name[:60]!r}: {error}") from error


def _binary_size(head: _TensorHead) -> int | None:
    """How many bytes of a tensor lie behind the JSON; None: its data is in the JSON."""
    parameters = free_fields(head.parameters)
    if "shared_memory_region" in parameters:
        raise BadMessage(f"{head.name[:60]!r} lies in shared memory, which is not offered here")
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise BadMessage(f"{head.name[:60]!r}: binary_data_size is no size")
    if head.data:
        raise BadMessage(f"{head.name[:60]!r} has its data twice")
    return size


def _wanted(output: OutputRequest, binary: bool) -> RequestedOutput:
    parameters = free_fields(output.parameters)
    if parameters.get("classification"):
        raise BadMessage(
            "the parameter classification is not offered here: ask `predict` for decisions"
        )
    if "shared_memory_region" in parameters:
        raise BadMessage(
            f"{output.name[:60]!r} is wanted in shared memory, which is not offered here"
        )
    return RequestedOutput(output.name, _flag(parameters, "binary_data", binary))


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise BadMessage(f"parameter {name} is neither true nor false")
    return value


def _unique(names: Sequence[str], kind: str) -> None:
    if len(set(names)) != len(names):
        raise BadMessage(f"an {kind} is named twice")


def _written(
    tensors: Sequence[Tensor], binary: Mapping[str, bool]
) -> tuple[list[dict[str, Any]], list[bytes]]:
    heads: list[dict[str, Any]] = []
    blobs = []
    for tensor in tensors:
        array = tensor.array
        head: dict[str, Any] = {
            "name": tensor.name,
            "datatype": datatype_of(array.dtype),
            "shape": list(array.shape),
        }
        if binary.get(tensor.name, False):
            blobs.append(to_bytes(array))
            head["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            head["data"] = _plain(array)
        heads.append(head)
    return heads, blobs


def _plain(array: np.ndarray) -> list[Any] | msgspec.Raw:
    flat = array.reshape(-1)
    if array.dtype.kind == "O":
        return [item.decode("utf-8") for item in flat]
    if array.dtype.kind == "f" and not np.isfinite(flat).all():
        raise BadMessage("NaN or infinity, which JSON has no word for: ask for binary data")
    return encode_numbers(flat)


def _joined(message: dict[str, Any], blobs: Sequence[bytes]) -> tuple[bytes, int | None]:
    head = msgspec.json.encode(message)
    return (b"".join([head, *blobs]), len(head)) if blobs else (head, None)
