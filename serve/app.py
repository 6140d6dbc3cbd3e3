"""`App`: the ASGI application: who may ask, which route it is, and one answer whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from edgeserve.errors import EdgeError, ServeError
from edgeserve.serve.http import Exchange, Receive, Send, Weight
from edgeserve.serve.keys import Keys, read_keys
from edgeserve.serve.logs import Log
from edgeserve.serve.metrics import Metrics
from edgeserve.serve.options import MB, Options
from edgeserve.serve.repository import Repository
from edgeserve.serve.routes import Routes, find
from edgeserve.serve.service import Service
from edgeserve.serve.trouble import Refused, failed, refused, said

__all__ = ["App"]


class App:
    """The endpoint as an ASGI application.

    Attributes:
        service: What answers, shared with gRPC.
        draining: No longer ready: answers still come, and each asks its connection to close.
    """

    def __init__(self, options: Options, log: Log | None = None) -> None:
        """Read keys and bundles' manifests; models are loaded by `start`.

        Raises:
            ServeError: EDGE-SERVE-003 two bundles of one name, -004 the key file.
            BundleError: a bundle breaks its rules.
        """
        self.options, self.log = options, log or Log()
        self.metrics = Metrics(options.price)
        repository = Repository(options, self.log, self.metrics.changed)
        self.service = Service(options, repository, self.metrics, self.log)
        self.keys = Keys(read_keys(options.keys))
        self._weight = Weight(options.inflight_mb * MB)
        self._routes = Routes(self.service, self._weight)

    @property
    def draining(self) -> bool:
        """Whether the endpoint is on its way out."""
        return self.service.draining

    async def start(self) -> None:
        """Load the models (errors as `Repository.start`)."""
        await self.service.repository.start()

    async def stop(self) -> None:
        """Wait for what runs and close the models."""
        await self.service.repository.drain()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        exchange.closing = self.draining
        route, key, span, code = "none", "", None, ""
        try:
            route, handler, arguments = find(exchange)
            if route not in _UNTRACED:
                span = self.service.traces.begin(route, exchange.headers, **_told(exchange, route))
            if route not in _OPEN:
                key = self.keys.check(exchange.headers)
            await self._handle(exchange, handler, arguments)
        except Refused as error:
            code = error.error.code
            await self._refuse(exchange, error)
        finally:
            exchange.release(self._weight)
            ended: dict[str, str | int] = {"http.response.status_code": exchange.status}
            self.service.traces.end(
                span, exchange.status >= 500, **ended | ({"error.type": code} if code else {})
            )
            self._count(exchange, route, key)

    async def _handle(self, exchange: Exchange, handler: str, arguments: dict[str, str]) -> None:
        """Call a route; what nobody foresaw is told to the log in full, and to the caller not."""
        call: Callable[..., Awaitable[None]] = getattr(self._routes, handler)
        try:
            await call(exchange, **arguments)
        except (Refused, asyncio.CancelledError):
            raise
        except EdgeError as error:
            self.log.fault(exchange.id, arguments.get("name", ""), error)
            raise failed(arguments.get("name", "")) from error
        except Exception as error:
            self.log.fault(exchange.id, arguments.get("name", ""), error)
            raise refused(500, _inner()) from error

    async def _refuse(self, exchange: Exchange, error: Refused) -> None:
        if exchange.status:
            return
        model = (
            exchange.parts[2]
            if exchange.parts[:2] == ("v2", "models") and exchange.parts[2:]
            else ""
        )
        if model in self.service.repository.places and error.status in (429, 503):
            self.metrics.sheds.labels(model, error.error.code).inc()
        await exchange.answer(error.status, said(error.error, exchange.id), headers=error.headers())

    def _count(self, exchange: Exchange, route: str, key: str) -> None:
        parts = exchange.parts
        named = parts[2] if parts[:2] == ("v2", "models") and parts[2:] else ""
        model = named if named in self.service.repository.places else ""
        self.metrics.requests.labels(model, route, str(exchange.status)).inc()
        if self.log.requests and route not in _OPEN:
            self.log.request(exchange, route, model, key)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Load and close with the server that carries this application, where it says when."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except EdgeError as error:
                    await send(
                        {
                            "type": "lifespan.startup.failed",
                            "message": f"{error.code} {error.message}",
                        }
                    )
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


#: Routes that need no key: what a load balancer asks.
_OPEN = ("live", "ready")
#: Routes whose requests are no part of anybody's trace: they come by the clock.
_UNTRACED = (*_OPEN, "metrics")


def _told(exchange: Exchange, route: str) -> dict[str, str]:
    """What the span of a request says from the start."""
    return {
        "http.request.method": exchange.method,
        "http.route": route,
        "edgeserve.request_id": exchange.id,
    }


def _inner() -> ServeError:
    return ServeError(
        "EDGE-SERVE-900",
        "endpoint",
        wanted="an answer",
        got="a fault of edgeserve",
        hint="the endpoint's log tells more under the same request id: please report it",
    )
