"""The protocol that an endpoint speaks: the Open Inference Protocol, or a REST adapter's.

Replies are read strictly: anything but a complete reply of the protocol is a `BadReply`.

TensorFlow Serving, ``POST /v1/models/M:predict``: tensors in columns. A model with one output
replies with its bare value, one with several with an object; bytes travel as ``{"b64": ...}``.

TorchServe, ``POST /predictions/M``: tensors go in rows, as its ``json`` envelope has them:
``{"instances": [...]}``, one sample each, answered by ``{"predictions": [...]}``. A raw input
goes as its bytes, to a classifier's handler, which replies with probabilities by label.

MLflow's scoring server, ``POST /invocations``: one model a server, tensors by name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from edgeserve import oip
from edgeserve.oip import client
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.tasks import decides
from edgeserve.tasks.classification import Classification
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import RanOn, Tensors, unverified_origin
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.replies import BadReply, check_outputs, sizes_of


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
    """The implementation of a contract's ``protocol``."""
    if protocol != "oip":
        return _ADAPTERS[protocol]

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


def _read_decision(reply: EndpointReply, manifest: Manifest) -> EndpointAnswer:
    try:
        answer = client.read_predict_reply(reply)
    except oip.BadMessage as error:
        raise BadReply("a reply without a decision") from error
    if answer.ran_on is None:
        raise BadReply("a reply that does not say where it ran")
    ran_on = replace(answer.ran_on, model_id=answer.model_id)
    if isinstance(answer.decision, dict):
        return EndpointAnswer(_sample_outputs(answer.decision, manifest), ran_on)
    return EndpointAnswer(answer.decision, ran_on)


def _sample_outputs(values: dict[str, Any], manifest: Manifest) -> Tensors:
    """Named tensors of one sample, of the task without a record."""
    if decides(manifest.task):
        raise BadReply("a reply without a decision")
    one = replace(
        manifest.signature,
        inputs=(),
        outputs=tuple(replace(s, shape=s.shape[1:]) for s in manifest.signature.outputs),
    )
    outputs = outputs_from_lists(values, one).value
    check_outputs(outputs, one, sizes_of(manifest.signature, None))
    return Tensors(outputs)


def json_request(path: str, body: object) -> EndpointRequest:
    """A request of JSON. NaN is written as Python and these servers write it."""
    headers = {"content-type": "application/json"}
    return EndpointRequest(path, headers, json.dumps(body).encode())


def _json_value(reply: EndpointReply, key: str) -> Any:
    """The value of a key in the object of a reply.

    Raises:
        BadReply: the reply is no JSON object, or lacks the key.
    """
    try:
        body = msgspec.json.decode(reply.body)
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
        with np.errstate(over="ignore"):  # infinity is refused where the numbers are checked
            outputs[spec.name] = given.astype(wanted)
        if given.dtype.kind in "iu" and not np.array_equal(outputs[spec.name], given):
            raise BadReply("a reply with numbers out of range")
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


def _tfserving_request(model: str, feed: Arrays) -> EndpointRequest:
    columns = {
        name: _base64(array.tolist()) if array.dtype.kind == "O" else array.tolist()
        for name, array in feed.items()
    }
    return json_request(f"/v1/models/{model}:predict", {"inputs": columns})


def _base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_base64(item) for item in value]
    return {"b64": base64.b64encode(value).decode("ascii")}


def _read(key: str, reply: EndpointReply, signature: Signature) -> EndpointAnswer:
    return outputs_from_lists(_json_value(reply, key), signature)


def _torchserve_request(model: str, feed: Arrays) -> EndpointRequest:
    columns = {name: nested_lists(array) for name, array in feed.items()}
    if len(columns) == 1:
        [rows] = columns.values()
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json_request(f"/predictions/{model}", {"instances": rows})


def _has_sample_axis(signature: Signature) -> bool:
    """Rows need one first axis, the samples, that all inputs have."""
    firsts = {spec.shape[:1] for spec in signature.inputs}
    return len(firsts) == 1 and () not in firsts


def _read_torchserve(reply: EndpointReply, signature: Signature) -> EndpointAnswer:
    rows = _json_value(reply, "predictions")
    if not isinstance(rows, list) or not rows:
        raise BadReply("a reply without rows")
    if not isinstance(rows[0], dict):
        return outputs_from_lists(rows, signature)
    try:
        columns = {spec.name: [row[spec.name] for row in rows] for spec in signature.outputs}
    except (KeyError, TypeError) as error:
        raise BadReply("a reply without the model's outputs") from error
    return outputs_from_lists(columns, signature)


def _torchserve_raw_request(model: str, data: bytes) -> EndpointRequest:
    headers = {"content-type": "application/octet-stream"}
    return EndpointRequest(f"/predictions/{model}", headers, data)


def _torchserve_classification(reply: EndpointReply, manifest: Manifest) -> EndpointAnswer:
    try:
        scores = msgspec.json.decode(reply.body, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadReply("a reply without probabilities by label") from error
    if not scores or not manifest.task.endswith("-classification"):
        raise BadReply("a reply without a decision")
    top = tuple(sorted(scores.items(), key=lambda pair: -pair[1]))
    known = manifest.labels
    indexes = tuple(known.index(name) if known.count(name) == 1 else -1 for name, _ in top)
    record: Any = Classification(
        label=top[0][0],
        score=top[0][1],
        top=top,
        index=indexes[0],
        indexes=indexes if -1 not in indexes else (),
    )
    return EndpointAnswer(record, unverified_origin(""))


def _mlflow_request(_: str, feed: Arrays) -> EndpointRequest:
    inputs = {name: nested_lists(array) for name, array in feed.items()}
    return json_request("/invocations", {"inputs": inputs})


#: REST adapters by the ``protocol`` of a contract.
_ADAPTERS = {
    "tfserving": EndpointProtocol(_tfserving_request, partial(_read, "outputs")),
    "torchserve": EndpointProtocol(
        _torchserve_request,
        _read_torchserve,
        _torchserve_raw_request,
        _torchserve_classification,
        _has_sample_axis,
    ),
    "mlflow": EndpointProtocol(_mlflow_request, partial(_read, "predictions")),
}
