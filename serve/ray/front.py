"""`Front`: takes requests as the endpoint does, and has a replica of the model answer them.

It is the endpoint's own application, so keys, limits, errors and paths are the same; only a
model's work is done elsewhere. Answering twice is harmless here, so a request whose replica dies is
given to another one, until its deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from edgeserve.errors import ServeError
from edgeserve.serve.app import App
from edgeserve.serve.http import Exchange
from edgeserve.serve.options import MB
from edgeserve.serve.ray.chain import follow
from edgeserve.serve.ray.memory import Reply
from edgeserve.serve.ray.scale import Scale
from edgeserve.serve.trouble import Refused, failed, refused

__all__ = ["Front", "Ingress"]

#: Replicas that are asked for one answer at most.
_MOST_TRIES = 5
_PAUSE_S = 0.05
#: A request's headers that its model's replica is to see.
_ALONG = (b"content-type", b"inference-header-content-length")
#: A reply's headers that are passed on; length, packing and id are this side's own.
_BACK = (
    b"inference-header-content-length",
    b"x-model-id",
    b"x-cold-start-ms",
    b"retry-after",
    b"retry-after-ms",
)


class Ingress:
    """The deployment that Ray Serve hands requests to.

    Args:
        scale: Of the application.
        handles: By name of a model, the handle of the deployment that answers for it.
    """

    def __init__(self, scale: Scale, handles: Mapping[str, Any]) -> None:
        self._scale, self._handles = scale, dict(handles)

    def __serve_build_asgi_app__(self) -> Front:
        """The application; Ray calls this once the deployment is made."""
        return Front(self._scale, self._handles)


class Front(App):
    """The endpoint's application, its models elsewhere.

    Args:
        scale: Of the application.
        handles: As `Ingress`.
    """

    def __init__(self, scale: Scale, handles: Mapping[str, Any]) -> None:
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

    async def _handle(self, exchange: Exchange, handler: str, arguments: dict[str, str]) -> None:
        """Have a model's requests answered by its replicas, and all others here."""
        name = arguments.get("name", "")
        chained = handler == "predict" and name in self._chains
        if handler in ("load", "unload"):
            raise refused(403, _left_to_ray())
        if not chained and name not in self._handles:
            await super()._handle(exchange, handler, arguments)
            return
        try:
            reply = await (self._follow if chained else self._forward)(exchange, name)
        except (Refused, asyncio.CancelledError):
            raise
        except Exception as error:
            self.log.fault(exchange.id, name, error)
            raise failed(name) from error
        headers = [(k, v) for k, v in reply.headers if k in _BACK]
        kind = reply.header(b"content-type") or b"application/json"
        await exchange.answer(reply.status, reply.body, kind, headers)

    async def _follow(self, exchange: Exchange, name: str) -> Reply:
        deadline, body = await self._received(exchange)
        return await follow(self._chains[name], self, exchange.id, body, deadline)

    async def _forward(self, exchange: Exchange, name: str) -> Reply:
        deadline, body = await self._received(exchange)
        path = b"/" + "/".join(exchange.parts).encode()
        along = [(k, v) for k, v in exchange.headers.items() if k in _ALONG]
        return await self.request(name, exchange.method, path, along, exchange.id, body, deadline)

    async def _received(self, exchange: Exchange) -> tuple[float, bytes]:
        """When the answer is due, and the body."""
        deadline = exchange.deadline(self.options.deadline_ms)
        if exchange.method == "GET":
            return deadline, b""
        seconds = min(self.options.body_s, max(0.05, deadline - exchange.came))
        return deadline, await exchange.body(self.options.body_mb * MB, seconds, self._weight)

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
        """One request to a model, wherever it runs.

        Raises:
            Refused: EDGE-SERVE-042, no replica answered in time; -043, too many wait.
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
    ) -> Reply:
        """Make a call of a model's replica, of another one if that dies.

        Args:
            name: Of the model.
            call: Begins it, given a handle and the seconds left.
            deadline: On the monotonic clock.

        Raises:
            Refused: as `request`.
        """
        from ray.serve.exceptions import BackPressureError

        handle = self._handles[name]
        if not self._apart:
            handle = handle.options(multiplexed_model_id=name)
        for _ in range(_MOST_TRIES):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return Reply(*await asyncio.wait_for(_result(call(handle, left)), left))
            except TimeoutError:
                break
            except BackPressureError:
                raise refused(503, _full(name), retry_after=1.0) from None
            except Exception as error:
                if not _died(error):
                    raise
                self.log.event("replica_lost", model=name, error=type(error).__name__)
                await asyncio.sleep(_PAUSE_S)
        raise refused(503, _nobody(name), retry_after=1.0)


async def _result(response: Any) -> Any:
    """Wait for a response; who gives up waiting no longer wants it."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise


def _died(error: Exception) -> bool:
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


def _nobody(name: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-042",
        f"model {name}",
        wanted="an answer from one of its replicas in time",
        got="none: they are busy, starting, or gone",
        hint="try again after Retry-After",
    )


def _left_to_ray() -> ServeError:
    return ServeError(
        "EDGE-SERVE-024",
        "load and unload",
        got="not allowed: Ray holds the models here",
        hint="deploy again with the new bundles; --models-per-replica loads them on demand",
    )


def _full(name: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-043",
        f"model {name}",
        wanted="room in the queue to its replicas",
        got="a full queue",
        hint="try again after Retry-After, or allow more replicas",
    )
