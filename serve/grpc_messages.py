"""The protocol's gRPC messages, made when they are needed from a table, and the tensors in them.

Generated code is tied to the release of protobuf that made it; a description handed to the
library at run time works with any. The numbers are those of ``grpc_predict_v2.proto``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.oip.tensors import check_shape, from_bytes, to_bytes

SERVICE = "inference.GRPCInferenceService"

#: Message -> its fields, as "name number kind": a kind in capitals is a message of this table,
#: ``*`` a list, ``map`` a map from text, ``?`` one of several of which one is set. Nested messages
#: have their parent's name before a dot.
_TABLE = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live 1 bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready 1 bool",
    "ModelReadyRequest": "name 1 string, version 2 string",
    "ModelReadyResponse": "ready 1 bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name 1 string, version 2 string, extensions 3 *string",
    "ModelMetadataRequest": "name 1 string, version 2 string",
    "ModelMetadataResponse": (
        "name 1 string, versions 2 *string, platform 3 string,"
        " inputs 4 *ModelMetadataResponse.TensorMetadata,"
        " outputs 5 *ModelMetadataResponse.TensorMetadata"
    ),
    "ModelMetadataResponse.TensorMetadata": "name 1 string, datatype 2 string, shape 3 *int64",
    "InferParameter": (
        "bool_param 1 bool ?parameter_choice, int64_param 2 int64 ?parameter_choice,"
        " string_param 3 string ?parameter_choice, double_param 4 double ?parameter_choice,"
        " uint64_param 5 uint64 ?parameter_choice"
    ),
    "InferTensorContents": (
        "bool_contents 1 *bool, int_contents 2 *int32, int64_contents 3 *int64,"
        " uint_contents 4 *uint32, uint64_contents 5 *uint64, fp32_contents 6 *float,"
        " fp64_contents 7 *double, bytes_contents 8 *bytes"
    ),
    "ModelInferRequest": (
        "model_name 1 string, model_version 2 string, id 3 string,"
        " parameters 4 map InferParameter, inputs 5 *ModelInferRequest.InferInputTensor,"
        " outputs 6 *ModelInferRequest.InferRequestedOutputTensor, raw_input_contents 7 *bytes"
    ),
    "ModelInferRequest.InferInputTensor": (
        "name 1 string, datatype 2 string, shape 3 *int64, parameters 4 map InferParameter,"
        " contents 5 InferTensorContents"
    ),
    "ModelInferRequest.InferRequestedOutputTensor": (
        "name 1 string, parameters 2 map InferParameter"
    ),
    "ModelInferResponse": (
        "model_name 1 string, model_version 2 string, id 3 string,"
        " parameters 4 map InferParameter, outputs 5 *ModelInferResponse.InferOutputTensor,"
        " raw_output_contents 6 *bytes"
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name 1 string, datatype 2 string, shape 3 *int64, parameters 4 map InferParameter,"
        " contents 5 InferTensorContents"
    ),
    "ModelStatisticsRequest": "name 1 string, version 2 string",
    "ModelStatisticsResponse": "model_stats 1 *ModelStatistics",
    "StatisticDuration": "count 1 uint64, ns 2 uint64",
    "InferStatistics": (
        "success 1 StatisticDuration, fail 2 StatisticDuration, queue 3 StatisticDuration,"
        " compute_input 4 StatisticDuration, compute_infer 5 StatisticDuration,"
        " compute_output 6 StatisticDuration"
    ),
    "InferBatchStatistics": "batch_size 1 uint64, compute_infer 3 StatisticDuration",
    "ModelStatistics": (
        "name 1 string, version 2 string, last_inference 3 uint64, inference_count 4 uint64,"
        " execution_count 5 uint64, inference_stats 6 InferStatistics,"
        " batch_stats 7 *InferBatchStatistics"
    ),
    "RepositoryIndexRequest": "repository_name 1 string, ready 2 bool",
    "RepositoryIndexResponse": "models 1 *RepositoryIndexResponse.ModelIndex",
    "RepositoryIndexResponse.ModelIndex": (
        "name 1 string, version 2 string, state 3 string, reason 4 string"
    ),
    "RepositoryModelLoadRequest": (
        "repository_name 1 string, model_name 2 string, parameters 3 map InferParameter"
    ),
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": (
        "repository_name 1 string, model_name 2 string, parameters 3 map InferParameter"
    ),
    "RepositoryModelUnloadResponse": "",
}


@functools.cache
def messages() -> dict[str, Any]:
    """Message classes by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="edgeserve/grpc_predict_v2.proto", package="inference", syntax="proto3"
    )
    made: dict[str, Any] = {}
    for name, fields in _TABLE.items():
        parent, _, own = name.rpartition(".")
        message = (made[parent].nested_type if parent else file.message_type).add(name=own)
        made[name] = message
        for field in filter(None, fields.split(", ")):
            _add(message, name, field.split(), descriptor_pb2.FieldDescriptorProto)
    pool = descriptor_pool.DescriptorPool()  # one of our own: others may know the same names
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in _TABLE
    }


def _add(message: Any, parent: str, words: list[str], kinds: Any) -> None:
    """Add one field of the table to a message's description."""
    name, number, kind = words[:3]
    field = message.field.add(name=name, number=int(number), label=kinds.LABEL_OPTIONAL)
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(entry, "", ["key", "1", "string"], kinds)
        _add(entry, "", ["value", "2", words[3]], kinds)
        field.label, field.type = kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
        field.type_name = f".inference.{parent}.{entry.name}"
        return
    if kind.startswith("*"):
        field.label, kind = kinds.LABEL_REPEATED, kind[1:]
    if kind in _TABLE:
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".inference.{kind}"
    else:
        field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    if words[3:]:  # one of several, of which one is set
        choice = words[3][1:]
        if choice not in [one.name for one in message.oneof_decl]:
            message.oneof_decl.add(name=choice)
        field.oneof_index = 0


#: Fields of a message and of those in it: one for each text of the largest raw input, and others.
_MOST_FIELDS = (1 << 16) + 4096
#: What a field takes once it is parsed, bytes; a submessage takes the most.
_FIELD_BYTES = 128
#: Numbers of variable length, and the bytes that each takes once it is parsed. Parsing them takes
#: long: of more than so many bytes of them the parser's lock would hold everybody up.
_VARINTS = {3: 8, 4: 8, 5: 4, 13: 4, 8: 1}
_MOST_VARINTS = 1 << 21


def parsed_size(kind: str, data: bytes) -> int:
    """Bytes that a message takes once it is parsed, at most: counted before it is.

    Args:
        kind: Name of the message.
        data: As it came, in the wire format of Protocol Buffers.

    Raises:
        BadMessage: it has more fields or packed numbers than any request needs, or is none.
    """
    spans = [(0, len(data), _fields(messages()[kind].DESCRIPTOR))]
    count = size = numbers = 0
    while spans:
        at, end, fields = spans.pop()
        while at < end:
            count += 1
            if count > _MOST_FIELDS:
                raise oip.BadMessage(f"more than {_MOST_FIELDS} fields: send raw contents")
            key, at = (data[at], at + 1) if data[at] < 128 else _varint(data, at)
            length, at = _length(key & 7, data, at)
            if length > end - at:
                raise oip.BadMessage("bytes that are no such message")
            times, inner = fields.get(key >> 3, (0, None))
            if inner is not None and key & 7 == 2 and length:
                spans.append((at, at + length, inner))
            numbers += length if times else 0
            size += length * (times or 1)
            at += length
    if numbers > _MOST_VARINTS:
        raise oip.BadMessage(f"more than {_MOST_VARINTS} bytes of numbers: send raw contents")
    return size + _FIELD_BYTES * count


def _fields(message: Any) -> dict[int, Any]:
    """By number, how many times its length a field of varints takes, and what fields lie in it."""
    return {
        field.number: (
            _VARINTS.get(field.type, 0),
            _fields(field.message_type) if field.message_type else None,
        )
        for field in message.fields
    }


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where what follows it begins."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise oip.BadMessage("bytes that are no such message")


def _length(wire: int, data: bytes, at: int) -> tuple[int, int]:
    """How long a field is, and where it begins; by the type in its key."""
    if wire == 2:
        if at < len(data) and data[at] < 128:
            return data[at], at + 1
        return _varint(data, at)
    if wire == 0:
        return _varint(data, at)[1] - at, at
    if wire in (1, 5):
        return (8 if wire == 1 else 4), at
    raise oip.BadMessage("bytes that are no such message")


#: Which field of a tensor's contents holds its numbers, where they do not lie in raw bytes.
_CONTENTS = {
    kind: f"{kind.lower()}_contents" for kind in "BOOL INT64 UINT64 FP32 FP64 BYTES".split()
}
_CONTENTS |= dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents")
_CONTENTS |= dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents")
_MAX_TENSORS = 256


def read_infer_request(message: Any, most: Mapping[str, int]) -> oip.InferRequest:
    """A ModelInferRequest as a request.

    Args:
        message: As it came.
        most: Largest number of elements by input name; another name is refused.

    Raises:
        BadMessage: it is not one that can be answered, or lies about a size.
    """
    raw = message.raw_input_contents
    if not 0 < len(message.inputs) <= _MAX_TENSORS:
        raise oip.BadMessage(f"{len(message.inputs)} inputs")
    if raw and len(raw) != len(message.inputs):
        raise oip.BadMessage(f"{len(raw)} raw contents for {len(message.inputs)} inputs")
    for kind, named in (("input", message.inputs), ("output", message.outputs)):
        if len({one.name for one in named}) != len(named):
            raise oip.BadMessage(f"an {kind} is named twice")
    pairs = zip(message.inputs, raw or [None] * len(message.inputs), strict=True)
    tensors = tuple(_tensor(tensor, data, most) for tensor, data in pairs)
    wanted = tuple(oip.RequestedOutput(output.name, True) for output in message.outputs)
    return oip.InferRequest(tensors, message.id, wanted, True, _parameters(message.parameters))


def _tensor(tensor: Any, raw: bytes | None, most: Mapping[str, int]) -> oip.Tensor:
    name = tensor.name
    if name not in most:
        raise oip.BadMessage(f"input {name[:60]!r}, which the model does not have")
    try:
        if "shared_memory_region" in tensor.parameters:
            raise oip.BadMessage("shared memory is not offered here")
        if raw is not None:
            array = from_bytes(memoryview(raw), tensor.datatype, tensor.shape, most[name])
            return oip.Tensor(name, array)
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
        found = np.fromiter(values, oip.DATATYPES[tensor.datatype], count)
        return found.reshape(tensor.shape)
    except OverflowError as error:
        raise oip.BadMessage(f"a number that {tensor.datatype} cannot hold") from error


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        found[name] = getattr(value, kind) if kind else None
    return found


def write_infer_response(answer: oip.InferResponse) -> Any:
    """An answer as a ModelInferResponse, its numbers as raw bytes."""
    made = messages()["ModelInferResponse"](
        model_name=answer.model, model_version=answer.version, id=answer.id
    )
    for name, value in answer.parameters.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        made.parameters[name].string_param = text
    for tensor in answer.outputs:
        made.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        made.raw_output_contents.append(to_bytes(tensor.array))
    return made
