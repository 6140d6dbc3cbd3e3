"""TorchServe: ``POST /predictions/M``.

Tensors go in rows, as its ``json`` envelope has them: ``{"instances": [...]}``, one sample each,
answered by ``{"predictions": [...]}``. A raw input goes as its bytes, to a classifier's handler,
which answers with probabilities by label.
"""

from __future__ import annotations

from typing import Any

from edgeserve.types.manifest import Manifest
from edgeserve.types.records import Classification
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.call import BadReply
from edgeserve.wrapper.fallback.leaving import headers
from edgeserve.wrapper.fallback.race import Message, Reply
from edgeserve.wrapper.fallback.replies import Said, foreign
from edgeserve.wrapper.fallback.ways import Way, json_message, json_value, listed, named

__all__ = ["WAY"]


def _tensors(model: str, feed: Arrays) -> Message:
    columns = {name: listed(array) for name, array in feed.items()}
    if len(columns) == 1:
        [rows] = columns.values()
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json_message(f"/predictions/{model}", {"instances": rows})


def _suits(signature: Signature) -> bool:
    """Rows need one first axis, the samples, that all inputs have."""
    firsts = {spec.shape[:1] for spec in signature.inputs}
    return len(firsts) == 1 and () not in firsts


def _read(reply: Reply, signature: Signature) -> Said:
    rows = json_value(reply, "predictions")
    if not isinstance(rows, list) or not rows:
        raise BadReply("an answer without rows")
    if not isinstance(rows[0], dict):
        return named({signature.outputs[0].name: rows}, signature)
    try:
        columns = {spec.name: [row[spec.name] for row in rows] for spec in signature.outputs}
    except (KeyError, TypeError) as error:
        raise BadReply("an answer without the model's outputs") from error
    return named(columns, signature)


def _raw(model: str, data: bytes) -> Message:
    return Message(f"/predictions/{model}", headers("application/octet-stream"), data)


def _decision(reply: Reply, manifest: Manifest) -> Said:
    import msgspec

    try:
        found = msgspec.json.decode(reply.body, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadReply("an answer that is no probabilities by label") from error
    if not found or not manifest.task.endswith("-classification"):
        raise BadReply("an answer that decides nothing")
    top = tuple(sorted(found.items(), key=lambda pair: -pair[1]))
    indexes = tuple(_index(label, manifest.labels) for label, _ in top)
    record: Any = Classification(
        label=top[0][0],
        score=top[0][1],
        top=top,
        index=indexes[0],
        indexes=indexes if -1 not in indexes else (),
    )
    return Said(record, foreign(""))


def _index(label: str, labels: tuple[str, ...]) -> int:
    return labels.index(label) if labels.count(label) == 1 else -1


WAY = Way(_tensors, _read, _raw, _decision, _suits)
