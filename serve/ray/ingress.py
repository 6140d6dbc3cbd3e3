"""`IngressApp`: takes requests as the endpoint does, and has a replica of the model answer them.

It is the endpoint's own application, so keys, limits, errors and paths are the same; only a
model's work is done elsewhere. Answering twice is harmless here, so a request whose replica dies
is given to another one, until its deadline. In a cascade of two models the first one's decision
says what the second one sees.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edgeserve.serve.app import App
from edgeserve.serve.http import Exchange
from edgeserve.serve.options import MB
from edgeserve.serve.ray.options import Cascade, RayOptions
from edgeserve.serve.ray.replica import ReplicaReply
from edgeserve.serve.request_errors import RequestRejected, model_failed, rejected

#: Replicas that are asked for one answer at most.
_MAX_TRIES = 5
_PAUSE_S = 0.05
#: A request's headers that its model's replica is to see.
_FORWARDED_HEADERS = (b"content-type", b"inference-header-content-length")
#: A reply's headers that are passed on; length, packing and id are this side's own.
_RETURNED_HEADERS = (
    b"inference-header-content-length x-model-id x-cold-start-ms retry-after retry-after-ms".split()
)


class Ingress:
    """The deployment that Ray Serve hands requests to.

    Args:
        scale: Of the application.
        handles: By name of a model, the handle of the deployment that answers for it.
    """

    def __init__(self, scale: RayOptions, handles: Mapping[str, Any]) -> None:
        self._scale, self._handles = scale, dict(handles)

    def __serve_build_asgi_app__(self) -> IngressApp:
        """The application; Ray calls this once the deployment is made."""
        return IngressApp(self._scale, self._handles)


class IngressApp(App):
    """The endpoint's application, its models elsewhere.

    Args:
        scale: Of the application.
        handles: As `Ingress`.
    """

    def __init__(self, scale: RayOptions, handles: Mapping[str, Any]) -> None:
        super().__init__(scale.endpoint(scale.bundles, lazy=True))
        self._handles = handles
        self._apart = not scale.models_per_replica
        self._chains = {chain.name: chain for chain in scale.chains}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, below whichever prefix Ray routes to this application."""
        root = scope.get("root_path", "").rstrip("/").encode()
        path = scope.get("raw_path") or scope.get("path", "").encode()
        if root and path.startswith(root + b"/"):
            scope = scope | {"raw_path": path[len(root) :]}
        await super().__call__(scope, receive, send)

    async def _handle(self, exchange: Exchange, route: str, arguments: dict[str, str]) -> None:
        """Have a model's requests answered by its replicas, and all others here."""
        name = arguments.get("name", "")
        chained = route == "predict" and name in self._chains
        if route in ("load", "unload"):
            got = "not allowed: Ray holds the models here"
            hint = "deploy again with the new bundles; --models-per-replica loads them on demand"
            raise rejected("EDGE-SERVE-024", "load and unload", "", got, hint=hint)
        if not chained and name not in self._handles:
            await super()._handle(exchange, route, arguments)
            return
        try:
            reply = await (self._follow if chained else self._forward)(exchange, name)
        except (RequestRejected, asyncio.CancelledError):
            raise
        except Exception as error:
            self.log.fault(exchange.id, name, error)
            raise model_failed(name) from error
        headers = [(k, v) for k, v in reply.headers if k in _RETURNED_HEADERS]
        kind = reply.header(b"content-type") or b"application/json"
        await exchange.answer(reply.status, reply.body, kind, headers)

    async def _follow(self, exchange: Exchange, name: str) -> ReplicaReply:
        deadline, body = await self._received(exchange)
        chain = self._chains[name]
        return await _CascadeRequest(self, chain, exchange.id, body, deadline).answer()

    async def _forward(self, exchange: Exchange, name: str) -> ReplicaReply:
        deadline, body = await self._received(exchange)
        path = b"/" + "/".join(exchange.parts).encode()
        along = [(k, v) for k, v in exchange.headers.items() if k in _FORWARDED_HEADERS]
        return await self.request(name, exchange.method, path, along, exchange.id, body, deadline)

    async def _received(self, exchange: Exchange) -> tuple[float, bytes]:
        """When the answer is due, and the body."""
        deadline = exchange.deadline(self.options.deadline_ms, self.options.longest_deadline_ms)
        if exchange.method == "GET":
            return deadline, b""
        seconds = min(self.options.body_s, max(0.05, deadline - exchange.came))
        return deadline, bytes(await exchange.body(self.options.body_mb * MB, seconds))

    async def request(
        self,
        name: str,
        method: str,
        path: bytes,
        along: list[tuple[bytes, bytes]],
        request_id: str,
        body: bytes,
        deadline: float,
    ) -> ReplicaReply:
        """One request to a model, wherever it runs.

        Raises:
            RequestRejected: EDGE-SERVE-042, no replica answered in time; -043, too many wait.
        """

        def call(handle: Any, left: float) -> Any:
            headers = [
                *along,
                (b"x-request-id", request_id.encode()),
                (b"x-request-deadline-ms", str(max(1, int(1e3 * left))).encode()),
            ]
            return handle.ask.remote(name, method, path, headers, body)

        return await self.answered(name, call, deadline)

    async def answered(
        self, name: str, call: Callable[[Any, float], Any], deadline: float
    ) -> ReplicaReply:
        """Make a call of a model's replica, of another one if that dies.

        Args:
            name: Of the model.
            call: Begins it, given a handle and the seconds left.
            deadline: On the monotonic clock.

        Raises:
            RequestRejected: as `request`.
        """
        from ray.serve.exceptions import BackPressureError

        handle, thing = self._handles[name], f"model {name}"
        if not self._apart:
            handle = handle.options(multiplexed_model_id=name)
        for _ in range(_MAX_TRIES):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return ReplicaReply(*await asyncio.wait_for(_result(call(handle, left)), left))
            except TimeoutError:
                break
            except BackPressureError:
                wanted, got = "room in the queue to its replicas", "a full queue"
                raise rejected("EDGE-SERVE-043", thing, wanted, got, retry_after=1.0) from None
            except Exception as error:
                if not _replica_died(error):
                    raise
                self.log.event("replica_lost", model=name, error=type(error).__name__)
                await asyncio.sleep(_PAUSE_S)
        wanted = "an answer from one of its replicas in time"
        got = "none: they are busy, starting, or gone"
        raise rejected("EDGE-SERVE-042", thing, wanted, got, retry_after=1.0)


async def _result(response: Any) -> Any:
    """Wait for a response; who gives up waiting no longer wants it."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise


def _replica_died(error: Exception) -> bool:
    """Whether this says of the replica that it is gone, and nothing of the request."""
    from ray import exceptions
    from ray.serve.exceptions import DeploymentUnavailableError

    gone = (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.OutOfMemoryError,
        DeploymentUnavailableError,
    )
    return isinstance(error, gone) and not isinstance(error, exceptions.RayTaskError)


class _PredictAnswer(msgspec.Struct):
    """The part of a `predict` answer that decides; the rest goes through as it is."""

    answer: dict[str, Any]


@dataclass(frozen=True)
class _CascadeRequest:
    """One request to a cascade, and the application that has its models answer."""

    app: IngressApp
    chain: Cascade
    request_id: str
    body: bytes
    deadline: float

    async def answer(self) -> ReplicaReply:
        """Ask the first model, then the one that its decision leads to.

        Returns:
            JSON ``{"model_name", "steps"}``: the first model's whole answer, then each further
            one, with the ``box`` (xyxy, pixels of the upright photo) that it is about where there
            is one. The header ``x-model-id`` names the models that answered, in order. A refusal
            of either model is the refusal of the whole.
        """
        chain = self.chain
        first = await self._predict(chain.first)
        if first.status != 200:
            return first
        decision = msgspec.json.decode(first.body, type=_PredictAnswer).answer
        if chain.crop:
            return await self._cropped(first, decision["boxes"][: chain.most])
        name = chain.pick.get(decision["label"], chain.otherwise)
        if not name:
            return self._joined([first])
        second = await self._predict(name)
        return self._joined([first, second]) if second.status == 200 else second

    async def _predict(self, name: str) -> ReplicaReply:
        path = f"/v2/models/{name}/predict".encode()
        asked = self.request_id, self.body, self.deadline
        return await self.app.request(name, "POST", path, [], *asked)

    async def _cropped(self, first: ReplicaReply, boxes: list[list[float]]) -> ReplicaReply:
        if not boxes:
            return self._joined([first])

        def call(handle: Any, left: float) -> Any:
            asked = self.chain.crop, self.request_id, self.body, boxes, 1e3 * left
            return handle.crops.remote(*asked)

        reply = await self.app.answered(self.chain.crop, call, self.deadline)
        if reply.status != 200:
            return reply
        answers = msgspec.json.decode(reply.body, type=list[dict[str, Any]])
        steps = [one | {"box": box} for one, box in zip(answers, boxes, strict=True)]
        return self._joined([first], steps, reply.header(b"x-model-id"))

    def _joined(
        self, replies: list[ReplicaReply], more: Sequence[dict[str, Any]] = (), also: bytes = b""
    ) -> ReplicaReply:
        steps: list[Any] = [*(msgspec.Raw(reply.body) for reply in replies), *more]
        body = msgspec.json.encode({"model_name": self.chain.name, "steps": steps})
        ids = [reply.header(b"x-model-id") for reply in replies]
        joined = (b"x-model-id", b", ".join(filter(None, [*ids, also])))
        return ReplicaReply(200, ((b"content-type", b"application/json"), joined), body)
