"""`App`: the ASGI application: who may ask, which route it is, and one answer whatever happens.

Routes are the Open Inference Protocol, `predict` on raw bytes, metrics, and the OpenAPI
description.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from edgeserve.errors import EdgeError
from edgeserve.serve.auth import ApiKeys, read_keys
from edgeserve.serve.browsers import BrowserRules
from edgeserve.serve.http import Exchange, Receive, Send
from edgeserve.serve.inference import InferenceResult
from edgeserve.serve.loaded_model import LoadedModel
from edgeserve.serve.openapi import document
from edgeserve.serve.options import MB, ServeOptions
from edgeserve.serve.repository import Repository
from edgeserve.serve.request_errors import (
    RequestRejected,
    error_body,
    forget_frames,
    model_failed,
    rejected,
)
from edgeserve.serve.service import Service
from edgeserve.serve.telemetry import Log, Metrics


class App:
    """The endpoint as an ASGI application.

    Attributes:
        service: What answers, shared with gRPC.
        draining: No longer ready: answers still come, and each asks its connection to close.
    """

    def __init__(self, options: ServeOptions, log: Log | None = None) -> None:
        """Read keys and bundles' manifests; models are loaded by `start`.

        Raises:
            ServeError: EDGE-SERVE-003 two bundles of one name, -004 the key file.
            BundleError: a bundle breaks its rules.
        """
        self.options, self.log = options, log or Log()
        self.metrics = Metrics(options.price)
        repository = Repository(options, self.log, self.metrics.changed)
        self.service = Service(options, repository, self.metrics, self.log)
        self.keys = ApiKeys(read_keys(options.keys))
        self._browsers = BrowserRules(options)
        self._routes = Routes(self.service)

    @property
    def draining(self) -> bool:
        """Whether the endpoint is on its way out."""
        return self.service.draining

    async def start(self) -> None:
        """Load the models (errors as `Repository.start`)."""
        await self.service.repository.start()

    async def stop(self, seconds: float = 1.0) -> None:
        """Wait so long for what runs, then close the models."""
        await self.service.repository.drain(seconds)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self.service.inflight)
        exchange.closing = self.draining
        route, key, span, code = "none", "", None, ""
        try:
            if self._browsers.admit(exchange):
                route = "preflight"
                await exchange.answer(204, b"")
                return
            route, arguments = find_route(exchange)
            if route not in _UNTRACED:
                attributes = {"http.request.method": exchange.method, "http.route": route}
                attributes["edgeserve.request_id"] = exchange.id
                span = self.service.traces.begin(route, exchange.headers, **attributes)
            if route not in _KEYLESS:
                self._browsers.check(exchange, route)
                key = self.keys.check(exchange.headers)
            await self._handle(exchange, route, arguments)
        except RequestRejected as error:
            code = error.error.code
            forget_frames(error)
            await self._refuse(exchange, error)
        finally:
            exchange.release()
            ended: dict[str, str | int] = {"http.response.status_code": exchange.status}
            ended |= {"error.type": code} if code else {}
            self.service.traces.end(span, exchange.status >= 500, **ended)
            self._count(exchange, route, key)

    async def _handle(self, exchange: Exchange, route: str, arguments: dict[str, str]) -> None:
        """Call a route; what nobody foresaw is told to the log in full, and to the caller not."""
        call: Callable[..., Awaitable[None]] = getattr(self._routes, route)
        try:
            await call(exchange, **arguments)
        except (RequestRejected, asyncio.CancelledError):
            raise
        except EdgeError as error:
            self.log.fault(exchange.id, arguments.get("name", ""), error)
            raise model_failed(arguments.get("name", "")) from error
        except Exception as error:
            self.log.fault(exchange.id, arguments.get("name", ""), error)
            fault = "a fault of edgeserve"
            raise rejected("EDGE-SERVE-900", "endpoint", "an answer", fault) from error

    async def _refuse(self, exchange: Exchange, error: RequestRejected) -> None:
        if exchange.status:
            return
        if (model := self._model(exchange)) and error.status in (429, 503):
            self.metrics.sheds.labels(model, error.error.code).inc()
        body = error_body(error.error, exchange.id)
        await exchange.answer(error.status, body, headers=error.headers())

    def _model(self, exchange: Exchange) -> str:
        """The model of this endpoint that a path names; empty: none."""
        parts = exchange.parts
        named = parts[2] if parts[:2] == ("v2", "models") and parts[2:] else ""
        return named if named in self.service.repository.places else ""

    def _count(self, exchange: Exchange, route: str, key: str) -> None:
        model = self._model(exchange)
        self.metrics.requests.labels(model, route, str(exchange.status)).inc()
        if self.log.requests and route not in _KEYLESS:
            self.log.request(exchange, route, model, key)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Load and close with the server that carries this application, where it says when."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except EdgeError as error:
                    failure = f"{error.code} {error.message}"
                    await send({"type": "lifespan.startup.failed", "message": failure})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


#: Routes that need no key: what a load balancer asks.
_KEYLESS = ("live", "ready")
#: Routes whose requests are no part of anybody's trace: they come by the clock.
_UNTRACED = (*_KEYLESS, "metrics")


#: Method and path (a word in capitals stands for any part), and the route: a method of `Routes`.
_TABLE: tuple[tuple[str, str, str], ...] = (
    ("GET", "v2/health/live", "live"),
    ("GET", "v2/health/ready", "ready"),
    ("GET", "v2", "server"),
    ("GET", "v2/models/stats", "statistics"),
    ("GET", "v2/models/NAME", "metadata"),
    ("GET", "v2/models/NAME/ready", "model_ready"),
    ("GET", "v2/models/NAME/config", "config"),
    ("GET", "v2/models/NAME/stats", "statistics"),
    ("POST", "v2/models/NAME/infer", "infer"),
    ("POST", "v2/models/NAME/predict", "predict"),
    ("GET", "v2/models/NAME/versions/VERSION", "metadata"),
    ("GET", "v2/models/NAME/versions/VERSION/ready", "model_ready"),
    ("GET", "v2/models/NAME/versions/VERSION/stats", "statistics"),
    ("POST", "v2/models/NAME/versions/VERSION/infer", "infer"),
    ("POST", "v2/models/NAME/versions/VERSION/predict", "predict"),
    ("POST", "v2/repository/index", "index"),
    ("POST", "v2/repository/models/NAME/load", "load"),
    ("POST", "v2/repository/models/NAME/unload", "unload"),
    ("GET", "metrics", "metrics"),
    ("GET", "openapi.json", "openapi"),
)
_PATTERNS = tuple((method, tuple(path.split("/")), name) for method, path, name in _TABLE)
#: Longest body of a question that holds no tensors.
_MAX_SMALL_BODY = 64 * 1024


def find_route(exchange: Exchange) -> tuple[str, dict[str, str]]:
    """The route that a request is for, and the words of the path.

    Raises:
        RequestRejected: EDGE-SERVE-016, there is none of that path, or not by that method.
    """
    parts = exchange.parts
    asked = len(parts) == 4 and exchange.method == "POST" and parts[:2] == ("v2", "models")
    if asked and parts[3] in ("infer", "predict"):  # nearly all of them, also in a flood
        return parts[3], {"name": parts[2]}
    methods = []
    for method, pattern, name in _PATTERNS:
        words = _match(pattern, exchange.parts)
        if words is not None:
            if method == exchange.method:
                return name, words
            methods.append(method)
    if methods:
        raise rejected("EDGE-SERVE-016", "request", methods[0], exchange.method, status=405)
    raise rejected("EDGE-SERVE-016", "request", "a path of this endpoint", "another")


def _match(pattern: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    words = {}
    for wanted, got in zip(pattern, parts, strict=True):
        if wanted.isupper():
            words[wanted.lower()] = got
        elif wanted != got:
            return None
    return words


class Routes:
    """Who answers each route.

    Args:
        service: What does the work.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._options = service.options

    async def live(self, exchange: Exchange) -> None:
        """200 while the process answers at all."""
        await exchange.answer(200, b'{"live":true}')

    async def ready(self, exchange: Exchange) -> None:
        """200 while each model can be asked; 503 when draining."""
        ready = self._service.ready
        await self._json(exchange, {"ready": ready}, 200 if ready else 503)

    async def server(self, exchange: Exchange) -> None:
        """Name, version and extensions."""
        await self._json(exchange, self._service.metadata())

    async def metadata(self, exchange: Exchange, name: str, version: str | None = None) -> None:
        """A model's inputs and outputs."""
        await self._json(exchange, await self._service.model_metadata(name, version))

    async def config(self, exchange: Exchange, name: str) -> None:
        """The same as Triton's clients ask for it."""
        await self._json(exchange, await self._service.model_config(name))

    async def model_ready(self, exchange: Exchange, name: str, version: str | None = None) -> None:
        """200 while the model can be asked."""
        ready = self._service.model_ready(name, version)
        await exchange.answer(200 if ready else 503, b"{}")

    async def statistics(
        self, exchange: Exchange, name: str | None = None, version: str | None = None
    ) -> None:
        """Counts and times."""
        await self._json(exchange, self._service.statistics(name, version))

    async def index(self, exchange: Exchange) -> None:
        """All models, loaded or not."""
        await self._small(exchange)
        await self._json(exchange, self._service.repository.index())

    async def load(self, exchange: Exchange, name: str) -> None:
        """Load a model, or what lies in its place by now."""
        asked = await self._small(exchange)
        await self._service.load(name, asked.get("parameters"))
        await exchange.answer(200, b"{}")

    async def unload(self, exchange: Exchange, name: str) -> None:
        """Put a model out."""
        await self._small(exchange)
        await self._service.unload(name)
        await exchange.answer(200, b"{}")

    async def metrics(self, exchange: Exchange) -> None:
        """Prometheus' text."""
        text = self._service.metrics.text(self._service.repository)
        await exchange.answer(200, text, b"text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, exchange: Exchange) -> None:
        """The description of all this."""
        await self._json(exchange, document(self._service.repository.places))

    async def infer(self, exchange: Exchange, name: str, version: str | None = None) -> None:
        """An inference request of the protocol."""
        deadline = self._deadline(exchange)
        head = exchange.number(b"inference-header-content-length")
        self._service.precheck(name, deadline)
        body = await self._body(exchange, deadline)
        asked = exchange.id, name, version, body, head, deadline
        await self._done(exchange, *await self._service.infer(*asked))

    async def predict(self, exchange: Exchange, name: str, version: str | None = None) -> None:
        """Raw bytes in, a decision out."""
        deadline = self._deadline(exchange)
        self._service.precheck(name, deadline)
        body = await self._body(exchange, deadline)
        asked = exchange.id, name, version, body, deadline
        await self._done(exchange, *await self._service.predict(*asked))

    def _deadline(self, exchange: Exchange) -> float:
        return exchange.deadline(self._options.deadline_ms, self._options.longest_deadline_ms)

    async def _body(self, exchange: Exchange, deadline: float) -> bytes | bytearray:
        seconds = min(self._options.body_s, max(0.05, deadline - exchange.came))
        return await exchange.body(self._options.body_mb * MB, seconds)

    async def _small(self, exchange: Exchange) -> dict[str, Any]:
        body = await exchange.body(_MAX_SMALL_BODY, self._options.body_s)
        if not body.strip():
            return {}
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            wanted, got = "a JSON object", "something else"
            hint = "send an object, or no body at all"
            raise rejected("EDGE-SERVE-010", "request", wanted, got, hint=hint) from None

    async def _json(self, exchange: Exchange, whole: object, status: int = 200) -> None:
        await exchange.answer(status, msgspec.json.encode(whole))

    async def _done(
        self, exchange: Exchange, done: InferenceResult, hosted: LoadedModel, cold: float
    ) -> None:
        headers = [(b"x-model-id", hosted.model_id.encode())]
        if cold:
            headers.append((b"x-cold-start-ms", str(round(cold)).encode()))
        kind = b"application/json"
        if done.head is not None:
            headers.append((b"inference-header-content-length", str(done.head).encode()))
            kind = b"application/octet-stream"
        await exchange.answer(200, done.body, kind, headers)
