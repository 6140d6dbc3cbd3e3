"""An ASGI application called in memory: how a replica asks the very one that `serve` runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Headers", "Reply", "ask"]

Headers = Sequence[tuple[bytes, bytes]]
_Application = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class Reply(NamedTuple):
    """What an application answered, headers in lower case."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty: it is not there."""
        return dict(self.headers).get(name, b"")


async def ask(app: _Application, method: str, path: bytes, headers: Headers, body: bytes) -> Reply:
    """Send one request, whole, and collect the answer."""
    scope = {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "headers": list(headers),
        "query_string": b"",
    }
    sent: list[MutableMapping[str, Any]] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *pieces = sent
    return Reply(
        start["status"], tuple(start["headers"]), b"".join(p.get("body", b"") for p in pieces)
    )
