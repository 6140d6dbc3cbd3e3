"""How an endpoint is spoken to: the Open Inference Protocol, or one of the adapters beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from edgeserve.types.manifest import Manifest
from edgeserve.types.tensors import Signature
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.call import BadReply
from edgeserve.wrapper.fallback.leaving import headers, raw_message, tensor_message
from edgeserve.wrapper.fallback.race import Message, Reply
from edgeserve.wrapper.fallback.replies import Said, foreign, read_record, read_tensors

__all__ = ["Way", "json_message", "json_value", "listed", "named", "way_of"]


@dataclass(frozen=True)
class Way:
    """Requests and answers of one kind of server.

    Attributes:
        tensors: A request with named tensors, of a model's name and its feed.
        read: Outputs by name of an answer to that; raises `BadReply`.
        raw: A request with a raw input; None: such a server takes none.
        decision: The decision of an answer to that; raises `BadReply`.
        suits: Whether such a server can take the inputs of a model.
    """

    tensors: Callable[[str, Arrays], Message]
    read: Callable[[Reply, Signature], Said]
    raw: Callable[[str, bytes], Message] | None = None
    decision: Callable[[Reply, Manifest], Said] | None = None
    suits: Callable[[Signature], bool] = lambda _: True


def way_of(protocol: str, binary: bool) -> Way:
    """The way of a contract's ``protocol``; adapters are loaded when one is asked for."""
    if protocol == "oip":
        return Way(
            lambda model, feed: tensor_message(model, feed, binary),
            read_tensors,
            raw_message,
            lambda reply, _: read_record(reply),
        )
    way: Way = import_module(f"edgeserve.wrapper.fallback.{protocol}").WAY
    return way


def json_message(path: str, whole: object) -> Message:
    """A request of JSON. NaN goes as Python and these servers write it."""
    return Message(path, headers("application/json"), json.dumps(whole).encode())


def json_value(reply: Reply, *keys: str) -> Any:
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


def listed(array: np.ndarray) -> Any:
    """An array as nested lists, bytes as text."""
    if array.dtype.kind == "O":
        text = np.vectorize(lambda item: bytes(item).decode("utf-8"), otypes=[object])
        return text(array).tolist()
    return array.tolist()


def named(values: Mapping[str, Any], signature: Signature) -> Said:
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
    return Said(found, foreign(""))
