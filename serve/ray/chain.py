"""A composition of two models: the first one's decision says what the second one sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from edgeserve.serve.ray.memory import Reply
from edgeserve.serve.ray.scale import Chain

__all__ = ["Asker", "follow"]


class Asker(Protocol):
    """Who can have a model answer: the front."""

    async def request(
        self,
        name: str,
        method: str,
        path: bytes,
        along: list[tuple[bytes, bytes]],
        request_id: str,
        body: bytes,
        deadline: float,
    ) -> Reply:
        """One request to a model."""

    async def answered(
        self, name: str, call: Callable[[Any, float], Any], deadline: float
    ) -> Reply:
        """One call of a model's replica."""


class _Said(msgspec.Struct):
    """The part of a `predict` answer that decides; the rest goes through as it is."""

    answer: dict[str, Any]


async def follow(
    chain: Chain, asker: Asker, request_id: str, body: bytes, deadline: float
) -> Reply:
    """Ask the first model, then the one that its decision leads to.

    Returns:
        JSON ``{"model_name", "steps"}``: the first model's whole answer, then each further one,
        with the ``box`` (xyxy, pixels of the upright photo) that it is about where there is one.
        The header ``x-model-id`` names the models that answered, in order. A refusal of either
        model is the refusal of the whole.
    """
    first = await _predict(asker, chain.first, request_id, body, deadline)
    if first.status != 200:
        return first
    decision = msgspec.json.decode(first.body, type=_Said).answer
    if chain.crop:
        boxes = decision["boxes"][: chain.most]
        return await _cropped(chain, asker, request_id, body, deadline, first, boxes)
    name = chain.pick.get(decision["label"], chain.otherwise)
    if not name:
        return _joined(chain, [first])
    second = await _predict(asker, name, request_id, body, deadline)
    return _joined(chain, [first, second]) if second.status == 200 else second


async def _predict(asker: Asker, name: str, request_id: str, body: bytes, deadline: float) -> Reply:
    path = f"/v2/models/{name}/predict".encode()
    return await asker.request(name, "POST", path, [], request_id, body, deadline)


async def _cropped(
    chain: Chain,
    asker: Asker,
    request_id: str,
    body: bytes,
    deadline: float,
    first: Reply,
    boxes: list[list[float]],
) -> Reply:
    if not boxes:
        return _joined(chain, [first])

    def call(handle: Any, left: float) -> Any:
        return handle.crops.remote(chain.crop, request_id, body, boxes, 1e3 * left)

    reply = await asker.answered(chain.crop, call, deadline)
    if reply.status != 200:
        return reply
    told = msgspec.json.decode(reply.body, type=list[dict[str, Any]])
    steps = [one | {"box": box} for one, box in zip(told, boxes, strict=True)]
    return _joined(chain, [first], steps, reply.header(b"x-model-id"))


def _joined(
    chain: Chain, replies: list[Reply], more: list[dict[str, Any]] | None = None, also: bytes = b""
) -> Reply:
    steps: list[Any] = [msgspec.Raw(reply.body) for reply in replies]
    body = msgspec.json.encode({"model_name": chain.name, "steps": steps + (more or [])})
    ids = [reply.header(b"x-model-id") for reply in replies]
    joined = b", ".join(filter(None, [*ids, also]))
    return Reply(200, ((b"content-type", b"application/json"), (b"x-model-id", joined)), body)
