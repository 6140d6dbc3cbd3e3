"""REST protocols of TensorFlow Serving, TorchServe and MLflow, loaded where a policy names one.

TensorFlow Serving, ``POST /v1/models/M:predict``: tensors in columns. A model with one output
replies with its bare value, one with several with an object; bytes travel as ``{"b64": ...}``.

TorchServe, ``POST /predictions/M``: tensors go in rows, as its ``json`` envelope has them:
``{"instances": [...]}``, one sample each, answered by ``{"predictions": [...]}``. A raw input
goes as its bytes, to a classifier's handler, which replies with probabilities by label.

MLflow's scoring server, ``POST /invocations``: one model a server, tensors by name.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.tasks.classification import Classification
from edgeserve.types.manifest import Manifest
from edgeserve.types.records import unverified_origin
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.hedged_call import BadReply
from edgeserve.wrapper.fallback.protocols import (
    EndpointAnswer,
    EndpointProtocol,
    json_request,
    json_value,
    nested_lists,
    outputs_from_lists,
)


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
    return outputs_from_lists(json_value(reply, key), signature)


TFSERVING = EndpointProtocol(_tfserving_request, partial(_read, "outputs"))


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
    rows = json_value(reply, "predictions")
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
    import msgspec

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


TORCHSERVE = EndpointProtocol(
    _torchserve_request,
    _read_torchserve,
    _torchserve_raw_request,
    _torchserve_classification,
    _has_sample_axis,
)


def _mlflow_request(_: str, feed: Arrays) -> EndpointRequest:
    inputs = {name: nested_lists(array) for name, array in feed.items()}
    return json_request("/invocations", {"inputs": inputs})


MLFLOW = EndpointProtocol(_mlflow_request, partial(_read, "predictions"))
