"""Applications for the comparison of servers, and those servers that start from Python.

    python -m dev.benchmarks.attacks.peer_apps uvicorn|edgeserve|granian plain|served PORT

``plain`` answers at once and drops every body; ``served`` is the endpoint's own application on the
bundle that ``ATTACKED_BUNDLE`` names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LARGE = b'{"x":"' + b"a" * 20_000 + b'"}'
_ANSWER = b'{"answer":{"label":""}}'


async def plain(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer every request; bodies are received and dropped."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    more = scope["method"] == "POST"
    while more:
        message = await receive()
        more = message.get("more_body", False)
    body = _LARGE if scope["path"] == "/openapi.json" else _ANSWER
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def _served(bundle: str) -> Any:
    from edgeserve.serve import App, ServeOptions

    return App(ServeOptions(bundles=(bundle,), threads=1, workers=1, inflight_mb=128))


if os.environ.get("ATTACKED_BUNDLE"):  # servers find an application by its name
    served = _served(os.environ["ATTACKED_BUNDLE"])


def main() -> None:
    """Run the server that is named, with the tightest limits that it has."""
    kind, name, port = sys.argv[1:]
    app = plain if name == "plain" else served
    if kind == "granian":
        _granian(app, int(port))
    else:
        _uvicorn(app, int(port), kind == "edgeserve")


def _uvicorn(app: Any, port: int, ours: bool) -> None:
    """As `edgeserve serve` does, or with uvicorn's own connection."""
    import uvicorn

    from edgeserve.serve.connection import Connection, ConnectionLimits
    from edgeserve.serve.inflight import InflightBytes

    limits = ConnectionLimits(InflightBytes(128 << 20), most=4096, seconds=30.0)
    uvicorn.run(
        app,
        port=port,
        http=partial(Connection, limits=limits) if ours else "httptools",  # type: ignore[arg-type]
        loop="uvloop",
        ws="none",
        access_log=False,
        log_level="critical",
        proxy_headers=False,
        timeout_keep_alive=75,
        backlog=2048,
    )


def _granian(app: Any, port: int) -> None:
    """In this process, as an endpoint that also answers gRPC needs it."""
    import uvloop
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    server = Server(
        app,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,
        http1_settings=HTTP1Settings(header_read_timeout=10_000, max_buffer_size=64 << 10),
        log_enabled=False,
    )
    uvloop.run(server.serve())


if __name__ == "__main__":
    main()
