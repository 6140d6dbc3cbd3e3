"""The HTTP connection: uvicorn's, with limits on what it would take without end.

A request line, headers, or the wait for them have no bound there: one connection could fill the
memory, or a thousand hold their sockets for good.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_URL = 4096
_MOST_HEADERS = 100
_MOST_HEADER_BYTES = 32 * 1024
#: A body is handed on in pieces of about this many bytes.
_PIECE = 1 << 20
#: Seconds for the request line and the headers.
_HEAD_S = 10.0


class _TooMuch(Exception):
    """More of a request's head than anybody needs; ends the connection."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, bounded."""

    _bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes = 0
        if self._timer is None:
            self._timer = self.loop.call_later(_HEAD_S, self._late)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > _MOST_URL:
            raise _TooMuch

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bytes += len(name) + len(value)
        if self._bytes > _MOST_HEADER_BYTES or len(self.headers) >= _MOST_HEADERS:
            raise _TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if not self.url.startswith(b"/"):
            raise _TooMuch
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Wake the application once for a body of usual size, not for each piece of it."""
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > _PIECE:
            self.flow.pause_reading()
            self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """The coded error in the form that every other has."""
        error: dict[str, Any] = {
            "error": "EDGE-SERVE-012 request: not HTTP, or more of a head than is taken",
            "code": "EDGE-SERVE-012",
        }
        body = msgspec.json.encode(error)
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )
        self.transport.close()

    def _late(self) -> None:
        self._timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
