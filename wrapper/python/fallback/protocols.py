"""The protocol that an endpoint speaks: the Open Inference Protocol, or a REST adapter's.

Replies are read strictly: anything but a complete reply of the protocol is a `BadReply`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.oip import client
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import RanOn, Tensors, unverified_origin
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.hedged_call import BadReply


@dataclass(frozen=True)
class EndpointProtocol:
    """Requests and replies of one kind of server.

    Attributes:
        tensors: Makes a request with named tensors, from a model's name and its feed.
        read: Outputs by name from the reply to that; raises `BadReply`.
        raw: Makes a request with a raw input; None: such a server accepts none.
        decision: The decision from the reply to that; raises `BadReply`.
        suits: Whether such a server accepts the inputs of a model.
    """

    tensors: Callable[[str, Arrays], EndpointRequest]
    read: Callable[[EndpointReply, Signature], EndpointAnswer]
    raw: Callable[[str, bytes], EndpointRequest] | None = None
    decision: Callable[[EndpointReply, Manifest], EndpointAnswer] | None = None
    suits: Callable[[Signature], bool] = lambda _: True


def protocol_of(protocol: str, binary: bool) -> EndpointProtocol:
    """The implementation of a contract's ``protocol``; adapters are loaded on demand."""
    if protocol != "oip":
        adapters = import_module("edgeserve.wrapper.fallback.rest_protocols")
        adapter: EndpointProtocol = getattr(adapters, protocol.upper())
        return adapter

    def tensors(model: str, feed: Arrays) -> EndpointRequest:
        named = [oip.Tensor(name, array) for name, array in feed.items()]
        return client.infer_request(f"/v2/models/{model}", named, binary)

    def raw(model: str, data: bytes) -> EndpointRequest:
        return client.predict_request(f"/v2/models/{model}", data)

    return EndpointProtocol(tensors, _read_tensors, raw, _read_decision)


def _read_tensors(reply: EndpointReply, signature: Signature) -> EndpointAnswer:
    try:
        response = client.read_infer_reply(reply)
        outputs = client.named_outputs(response, signature)
    except client.OutputMismatch as error:
        raise BadReply("a reply without the model's outputs") from error
    except oip.BadMessage as error:
        raise BadReply("no reply of the protocol") from error
    model_id = response.parameters.get("model_id")
    return EndpointAnswer(outputs, unverified_origin(model_id if isinstance(model_id, str) else ""))


def _read_decision(reply: EndpointReply, _: Manifest) -> EndpointAnswer:
    try:
        answer = client.read_predict_reply(reply)
    except oip.BadMessage as error:
        raise BadReply("a reply without a decision") from error
    if answer.ran_on is None:
        raise BadReply("a reply that does not say where it ran")
    value = answer.decision
    ran_on = msgspec.structs.replace(answer.ran_on, model_id=answer.model_id)
    return EndpointAnswer(Tensors(value) if isinstance(value, dict) else value, ran_on)


def json_request(path: str, body: object) -> EndpointRequest:
    """A request of JSON. NaN is written as Python and these servers write it."""
    headers = {"content-type": "application/json"}
    return EndpointRequest(path, headers, json.dumps(body).encode())


def json_value(reply: EndpointReply, key: str) -> Any:
    """The value of a key in the object of a reply.

    Raises:
        BadReply: the reply is no JSON object, or lacks the key.
    """
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise BadReply("a reply that is no JSON") from error
    if not isinstance(body, dict) or key not in body:
        raise BadReply(f"a reply without {key!r}")
    return body[key]


def nested_lists(array: np.ndarray) -> Any:
    """An array as nested lists, bytes as text."""
    if array.dtype.kind == "O":
        text = np.vectorize(lambda item: bytes(item).decode("utf-8"), otypes=[object])
        return text(array).tolist()
    return array.tolist()


def outputs_from_lists(values: Any, signature: Signature) -> EndpointAnswer:
    """Nested lists by name as the signature's outputs; a bare list is the only one's.

    Raises:
        BadReply: one is missing, ragged, or of another kind or rank.
    """
    outputs: Arrays = {}
    values = values if isinstance(values, dict) else {signature.outputs[0].name: values}
    for spec in signature.outputs:
        try:
            given = np.asarray(values[spec.name])
        except (KeyError, ValueError) as error:
            raise BadReply("a reply without the model's outputs") from error
        kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
        wanted = np.dtype(spec.dtype) if spec.dtype != "string" else np.dtype(object)
        if given.ndim != len(spec.shape) or given.dtype.kind not in kinds.get(wanted.kind, "U"):
            raise BadReply("a reply with outputs of another kind or rank")
        if any(isinstance(d, int) and d != n for d, n in zip(spec.shape, given.shape, strict=True)):
            raise BadReply("a reply with outputs of another size")
        outputs[spec.name] = given.astype(wanted)
    return EndpointAnswer(outputs, unverified_origin(""))


@dataclass(frozen=True)
class EndpointAnswer:
    """An endpoint's answer.

    Attributes:
        value: Outputs by name, or a record.
        ran_on: Where it ran, as far as the endpoint declares it.
    """

    value: Any
    ran_on: RanOn
