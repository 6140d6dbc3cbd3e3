"""How an endpoint is spoken to: the Open Inference Protocol, or one of the REST adapters beside it.

Replies are read strictly: anything but a whole answer of the protocol is a bad reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import RanOn, Runtime, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.egress import raw_request, request_headers, tensor_request
from edgeserve.wrapper.fallback.hedged_call import BadReply
from edgeserve.wrapper.fallback.transport import EndpointReply, EndpointRequest

__all__ = [
    "EndpointAnswer",
    "EndpointProtocol",
    "json_request",
    "json_value",
    "nested_lists",
    "outputs_from_lists",
    "protocol_of",
    "read_record",
    "read_tensors",
    "unverified_origin",
]


@dataclass(frozen=True)
class EndpointProtocol:
    """Requests and answers of one kind of server.

    Attributes:
        tensors: A request with named tensors, of a model's name and its feed.
        read: Outputs by name of an answer to that; raises `BadReply`.
        raw: A request with a raw input; None: such a server takes none.
        decision: The decision of an answer to that; raises `BadReply`.
        suits: Whether such a server can take the inputs of a model.
    """

    tensors: Callable[[str, Arrays], EndpointRequest]
    read: Callable[[EndpointReply, Signature], EndpointAnswer]
    raw: Callable[[str, bytes], EndpointRequest] | None = None
    decision: Callable[[EndpointReply, Manifest], EndpointAnswer] | None = None
    suits: Callable[[Signature], bool] = lambda _: True


def protocol_of(protocol: str, binary: bool) -> EndpointProtocol:
    """The way of a contract's ``protocol``; adapters are loaded when one is asked for."""
    if protocol == "oip":
        return EndpointProtocol(
            lambda model, feed: tensor_request(model, feed, binary),
            read_tensors,
            raw_request,
            lambda reply, _: read_record(reply),
        )
    adapters = import_module("edgeserve.wrapper.fallback.rest_protocols")
    found: EndpointProtocol = getattr(adapters, protocol.upper())
    return found


def json_request(path: str, whole: object) -> EndpointRequest:
    """A request of JSON. NaN goes as Python and these servers write it."""
    return EndpointRequest(path, request_headers("application/json"), json.dumps(whole).encode())


def json_value(reply: EndpointReply, *keys: str) -> Any:
    """What stands under the first of these keys in an answer's object.

    Raises:
        BadReply: the answer is no JSON object, or has none of them.
    """
    try:
        whole = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise BadReply("an answer that is no JSON") from error
    for key in keys:
        if isinstance(whole, dict) and key in whole:
            return whole[key]
    raise BadReply(f"an answer without {keys[0]!r}")


def nested_lists(array: np.ndarray) -> Any:
    """An array as nested lists, bytes as text."""
    if array.dtype.kind == "O":
        text = np.vectorize(lambda item: bytes(item).decode("utf-8"), otypes=[object])
        return text(array).tolist()
    return array.tolist()


def outputs_from_lists(values: Mapping[str, Any], signature: Signature) -> EndpointAnswer:
    """Nested lists by name as the signature's outputs.

    Raises:
        BadReply: one is missing, ragged, or of another kind or rank.
    """
    found: Arrays = {}
    for spec in signature.outputs:
        try:
            given = np.asarray(values[spec.name])
        except (KeyError, ValueError) as error:
            raise BadReply("an answer without the model's outputs") from error
        kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
        wanted = np.dtype(spec.dtype) if spec.dtype != "string" else np.dtype(object)
        if given.ndim != len(spec.shape) or given.dtype.kind not in kinds.get(wanted.kind, "U"):
            raise BadReply("an answer whose outputs are of another kind or rank")
        if any(isinstance(d, int) and d != n for d, n in zip(spec.shape, given.shape, strict=True)):
            raise BadReply("an answer whose outputs are of another size")
        found[spec.name] = given.astype(wanted)
    return EndpointAnswer(found, unverified_origin(""))


@dataclass(frozen=True)
class EndpointAnswer:
    """What an endpoint said.

    Attributes:
        value: Outputs by name, or a record.
        ran_on: What it says of itself; of a foreign server little.
    """

    value: Any
    ran_on: RanOn


class _PredictBody(msgspec.Struct):
    model_id: str
    answer: msgspec.Raw
    ran_on: RanOn


def read_tensors(reply: EndpointReply, signature: Signature) -> EndpointAnswer:
    """Outputs of an inference response, as the signature names them.

    Raises:
        BadReply: it is no such response, or an output is missing or of another dtype or rank.
    """
    head = reply.headers.get("inference-header-content-length")
    if head is not None and not (head.isascii() and head.isdigit()):
        raise BadReply("an answer whose header lies")
    try:
        answer = oip.read_response(reply.body, int(head) if head else None)
    except oip.BadMessage as error:
        raise BadReply("an answer that is none of the protocol") from error
    given = {tensor.name: tensor.array for tensor in answer.outputs}
    found: Arrays = {}
    for spec in signature.outputs:
        array = given.get(spec.name)
        if array is None or array.ndim != len(spec.shape) or str(array.dtype) != spec.dtype:
            raise BadReply("an answer without the model's outputs")
        found[spec.name] = array
    model_id = answer.parameters.get("model_id")
    return EndpointAnswer(found, unverified_origin(model_id if isinstance(model_id, str) else ""))


def read_record(reply: EndpointReply) -> EndpointAnswer:
    """A decision of edgeserve's `predict`.

    Raises:
        BadReply: it is none.
    """
    try:
        said = decode(reply.body, _PredictBody)
        value = _named_arrays(said.answer) or decode(bytes(said.answer), AnyRecord)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadReply("an answer that is no decision") from error
    return EndpointAnswer(value, msgspec.structs.replace(said.ran_on, model_id=said.model_id))


def _named_arrays(answer: msgspec.Raw) -> Tensors | None:
    """Named arrays, for the task that has no record."""
    held = msgspec.json.decode(answer, type=dict[str, Any])
    if "record" in held:
        return None
    return Tensors({name: np.asarray(value) for name, value in held.items()})


def unverified_origin(model_id: str) -> RanOn:
    """What is known of a server that answers tensors."""
    return RanOn(
        where="cloud",
        format="",
        precision="",
        sha256="",
        model_id=model_id,
        runtime=Runtime(name="endpoint", version="", delegate=""),
    )
