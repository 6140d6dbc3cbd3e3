"""TensorFlow Serving's REST: ``POST /v1/models/M:predict``, tensors in columns.

A model with one output answers with its bare value, one with several with an object; bytes travel
as ``{"b64": ...}``.
"""

from __future__ import annotations

import base64
from typing import Any

from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.race import Message, Reply
from edgeserve.wrapper.fallback.replies import Said
from edgeserve.wrapper.fallback.ways import Way, json_message, json_value, named

__all__ = ["WAY"]


def _tensors(model: str, feed: Arrays) -> Message:
    columns = {
        name: _packed(array.tolist()) if array.dtype.kind == "O" else array.tolist()
        for name, array in feed.items()
    }
    return json_message(f"/v1/models/{model}:predict", {"inputs": columns})


def _packed(value: Any) -> Any:
    if isinstance(value, list):
        return [_packed(item) for item in value]
    return {"b64": base64.b64encode(value).decode("ascii")}


def _read(reply: Reply, signature: Signature) -> Said:
    outputs = json_value(reply, "outputs")
    if not isinstance(outputs, dict):
        outputs = {signature.outputs[0].name: outputs}
    return named(outputs, signature)


WAY = Way(_tensors, _read)
