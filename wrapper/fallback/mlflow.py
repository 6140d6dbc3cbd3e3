"""MLflow's scoring server: ``POST /invocations``, one model a server, tensors by name."""

from __future__ import annotations

from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.race import Message, Reply
from edgeserve.wrapper.fallback.replies import Said
from edgeserve.wrapper.fallback.ways import Way, json_message, json_value, listed, named

__all__ = ["WAY"]


def _tensors(_: str, feed: Arrays) -> Message:
    whole = {"inputs": {name: listed(array) for name, array in feed.items()}}
    return json_message("/invocations", whole)


def _read(reply: Reply, signature: Signature) -> Said:
    said = json_value(reply, "predictions")
    if not isinstance(said, dict):  # a model that gives one bare array
        said = {signature.outputs[0].name: said}
    return named(said, signature)


WAY = Way(_tensors, _read)
