"""Endpoints' replies, read strictly: anything but a whole answer of the protocol is a bad reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.types.base import decode
from edgeserve.types.records import RanOn, Record, Runtime, Tensors
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.call import BadReply
from edgeserve.wrapper.fallback.race import Reply

__all__ = ["Said", "foreign", "read_record", "read_tensors"]


@dataclass(frozen=True)
class Said:
    """What an endpoint said.

    Attributes:
        value: Outputs by name, or a record.
        ran_on: What it says of itself; of a foreign server little.
    """

    value: Any
    ran_on: RanOn


class _Decision(msgspec.Struct):
    model_id: str
    answer: msgspec.Raw
    ran_on: RanOn


def read_tensors(reply: Reply, signature: Signature) -> Said:
    """Outputs of an inference response, as the signature names them.

    Raises:
        BadReply: it is no such response, or an output is missing or of another dtype or rank.
    """
    head = reply.headers.get("inference-header-content-length")
    if head is not None and not (head.isascii() and head.isdigit()):
        raise BadReply("an answer whose header lies")
    try:
        answer = oip.read_answer(reply.body, int(head) if head else None)
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
    return Said(found, foreign(model_id if isinstance(model_id, str) else ""))


def read_record(reply: Reply) -> Said:
    """A decision of edgeserve's `predict`.

    Raises:
        BadReply: it is none.
    """
    try:
        said = decode(reply.body, _Decision)
        value = _tensors(said.answer) or decode(bytes(said.answer), Record)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadReply("an answer that is no decision") from error
    return Said(value, msgspec.structs.replace(said.ran_on, model_id=said.model_id))


def _tensors(answer: msgspec.Raw) -> Tensors | None:
    """Named arrays, for the task that has no record."""
    held = msgspec.json.decode(answer, type=dict[str, Any])
    if "record" in held:
        return None
    return Tensors({name: np.asarray(value) for name, value in held.items()})


def foreign(model_id: str) -> RanOn:
    """What is known of a server that answers tensors."""
    return RanOn(
        where="cloud",
        format="",
        precision="",
        sha256="",
        model_id=model_id,
        runtime=Runtime(name="endpoint", version="", delegate=""),
    )
