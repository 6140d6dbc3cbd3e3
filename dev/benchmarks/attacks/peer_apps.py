"""Applications for the comparison of servers, and uvicorn with and without our connection.

    python -m dev.benchmarks.attacks.peer_apps uvicorn|edgeserve plain|served PORT

``plain`` answers at once and drops every body; ``served`` is the endpoint's own application on the
bundle that ``ATTACKED_BUNDLE`` names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
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


def __getattr__(name: str) -> Any:
    """``served``, made when a server asks for it."""
    if name != "served":
        raise AttributeError(name)
    from edgeserve.serve import App, ServeOptions

    bundle = os.environ["ATTACKED_BUNDLE"]
    options = ServeOptions(bundles=(bundle,), threads=1, workers=1, inflight_mb=128)
    return App(options)


def main() -> None:
    """Run uvicorn as `edgeserve serve` does, or with its own connection."""
    import uvicorn

    from edgeserve.serve.connection import Connection

    kind, name, port = sys.argv[1:]
    app = plain if name == "plain" else __getattr__(name)
    uvicorn.run(
        app,
        port=int(port),
        http=Connection if kind == "edgeserve" else "httptools",
        loop="uvloop",
        ws="none",
        access_log=False,
        log_level="critical",
        proxy_headers=False,
        timeout_keep_alive=75,
        backlog=2048,
    )


if __name__ == "__main__":
    main()
