"""The protocol's gRPC messages, made when they are needed from a table, not by a code generator.

Generated code is tied to the release of protobuf that made it; a description handed to the library
at run time works with any. The numbers are those of ``grpc_predict_v2.proto``.
"""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["SERVICE", "messages"]

SERVICE = "inference.GRPCInferenceService"

#: Message -> its fields, as "name number kind": a kind in capitals is a message of this table,
#: ``*`` a list, ``map`` a map from text. Nested messages have their parent's name before a dot.
_TABLE: dict[str, tuple[str, ...]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("live 1 bool",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("ready 1 bool",),
    "ModelReadyRequest": ("name 1 string", "version 2 string"),
    "ModelReadyResponse": ("ready 1 bool",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("name 1 string", "version 2 string", "extensions 3 *string"),
    "ModelMetadataRequest": ("name 1 string", "version 2 string"),
    "ModelMetadataResponse": (
        "name 1 string",
        "versions 2 *string",
        "platform 3 string",
        "inputs 4 *ModelMetadataResponse.TensorMetadata",
        "outputs 5 *ModelMetadataResponse.TensorMetadata",
    ),
    "ModelMetadataResponse.TensorMetadata": (
        "name 1 string",
        "datatype 2 string",
        "shape 3 *int64",
    ),
    "InferParameter": (
        "bool_param 1 bool ?parameter_choice",
        "int64_param 2 int64 ?parameter_choice",
        "string_param 3 string ?parameter_choice",
        "double_param 4 double ?parameter_choice",
        "uint64_param 5 uint64 ?parameter_choice",
    ),
    "InferTensorContents": (
        "bool_contents 1 *bool",
        "int_contents 2 *int32",
        "int64_contents 3 *int64",
        "uint_contents 4 *uint32",
        "uint64_contents 5 *uint64",
        "fp32_contents 6 *float",
        "fp64_contents 7 *double",
        "bytes_contents 8 *bytes",
    ),
    "ModelInferRequest": (
        "model_name 1 string",
        "model_version 2 string",
        "id 3 string",
        "parameters 4 map InferParameter",
        "inputs 5 *ModelInferRequest.InferInputTensor",
        "outputs 6 *ModelInferRequest.InferRequestedOutputTensor",
        "raw_input_contents 7 *bytes",
    ),
    "ModelInferRequest.InferInputTensor": (
        "name 1 string",
        "datatype 2 string",
        "shape 3 *int64",
        "parameters 4 map InferParameter",
        "contents 5 InferTensorContents",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": (
        "name 1 string",
        "parameters 2 map InferParameter",
    ),
    "ModelInferResponse": (
        "model_name 1 string",
        "model_version 2 string",
        "id 3 string",
        "parameters 4 map InferParameter",
        "outputs 5 *ModelInferResponse.InferOutputTensor",
        "raw_output_contents 6 *bytes",
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name 1 string",
        "datatype 2 string",
        "shape 3 *int64",
        "parameters 4 map InferParameter",
        "contents 5 InferTensorContents",
    ),
    "ModelStatisticsRequest": ("name 1 string", "version 2 string"),
    "ModelStatisticsResponse": ("model_stats 1 *ModelStatistics",),
    "StatisticDuration": ("count 1 uint64", "ns 2 uint64"),
    "InferStatistics": (
        "success 1 StatisticDuration",
        "fail 2 StatisticDuration",
        "queue 3 StatisticDuration",
        "compute_input 4 StatisticDuration",
        "compute_infer 5 StatisticDuration",
        "compute_output 6 StatisticDuration",
    ),
    "InferBatchStatistics": ("batch_size 1 uint64", "compute_infer 3 StatisticDuration"),
    "ModelStatistics": (
        "name 1 string",
        "version 2 string",
        "last_inference 3 uint64",
        "inference_count 4 uint64",
        "execution_count 5 uint64",
        "inference_stats 6 InferStatistics",
        "batch_stats 7 *InferBatchStatistics",
    ),
    "RepositoryIndexRequest": ("repository_name 1 string", "ready 2 bool"),
    "RepositoryIndexResponse": ("models 1 *RepositoryIndexResponse.ModelIndex",),
    "RepositoryIndexResponse.ModelIndex": (
        "name 1 string",
        "version 2 string",
        "state 3 string",
        "reason 4 string",
    ),
    "RepositoryModelLoadRequest": (
        "repository_name 1 string",
        "model_name 2 string",
        "parameters 3 map InferParameter",
    ),
    "RepositoryModelLoadResponse": (),
    "RepositoryModelUnloadRequest": (
        "repository_name 1 string",
        "model_name 2 string",
        "parameters 3 map InferParameter",
    ),
    "RepositoryModelUnloadResponse": (),
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
        for field in fields:
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
