"""gRPC messages to requests, answers to gRPC messages: the same values as REST's, other clothes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.oip.tensors import check_shape, from_bytes, to_bytes
from edgeserve.serve.grpc_messages import messages

__all__ = ["read", "write"]

#: Which field of a tensor's contents holds its numbers, where they do not lie in raw bytes.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_MOST_TENSORS = 256


def read(message: Any, most: Mapping[str, int]) -> oip.Request:
    """A ModelInferRequest as a request.

    Args:
        message: As it came.
        most: Largest number of elements by input name; another name is refused.

    Raises:
        BadMessage: it is not one that can be answered, or lies about a size.
    """
    raw = message.raw_input_contents
    if not 0 < len(message.inputs) <= _MOST_TENSORS:
        raise oip.BadMessage(f"{len(message.inputs)} inputs")
    if raw and len(raw) != len(message.inputs):
        raise oip.BadMessage(f"{len(raw)} raw contents for {len(message.inputs)} inputs")
    for kind, named in (("input", message.inputs), ("output", message.outputs)):
        if len({one.name for one in named}) != len(named):
            raise oip.BadMessage(f"an {kind} is named twice")
    tensors = tuple(
        _tensor(tensor, raw[i] if raw else None, most) for i, tensor in enumerate(message.inputs)
    )
    wanted = tuple(oip.Wanted(output.name, True) for output in message.outputs)
    return oip.Request(tensors, message.id, wanted, True, _parameters(message.parameters))


def _tensor(tensor: Any, raw: bytes | None, most: Mapping[str, int]) -> oip.Tensor:
    name = tensor.name
    if name not in most:
        raise oip.BadMessage(f"input {name[:60]!r}, which the model does not have")
    try:
        if "shared_memory_region" in tensor.parameters:
            raise oip.BadMessage("shared memory is not offered here")
        if raw is not None:
            return oip.Tensor(
                name, from_bytes(memoryview(raw), tensor.datatype, tensor.shape, most[name])
            )
        return oip.Tensor(name, _contents(tensor, most[name]))
    except oip.BadMessage as error:
        raise oip.BadMessage(f"input {name[:60]!r}: {error}") from error


def _contents(tensor: Any, most: int) -> np.ndarray:
    if tensor.datatype not in _CONTENTS:
        raise oip.BadMessage(f"datatype {tensor.datatype[:20]!r} without raw contents")
    values = getattr(tensor.contents, _CONTENTS[tensor.datatype])
    count = check_shape(tensor.shape, most)
    if len(values) != count:
        raise oip.BadMessage(f"{len(values)} elements where its shape says {count}")
    if tensor.datatype == "BYTES":
        array = np.empty(count, object)
        array[:] = list(values)
        return array.reshape(tensor.shape)
    try:
        return np.array(list(values), oip.DATATYPES[tensor.datatype]).reshape(tensor.shape)
    except OverflowError as error:
        raise oip.BadMessage(f"a number that {tensor.datatype} cannot hold") from error


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        found[name] = getattr(value, kind) if kind else None
    return found


def write(answer: oip.Answer) -> Any:
    """An answer as a ModelInferResponse, its numbers as raw bytes."""
    made = messages()["ModelInferResponse"](
        model_name=answer.model, model_version=answer.version, id=answer.id
    )
    for name, value in answer.parameters.items():
        made.parameters[name].string_param = (
            value if isinstance(value, str) else msgspec.json.encode(value).decode()
        )
    for tensor in answer.outputs:
        made.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        made.raw_output_contents.append(to_bytes(tensor.array))
    return made
