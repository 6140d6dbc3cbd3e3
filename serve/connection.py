"""The HTTP connection: uvicorn's, with limits on what it would take without end.

uvicorn's connection hands its parser whatever has come. Without more, one connection could queue
thousands of requests, send a header that does not end, never read its answers, or hold its socket
for good. Here the parser gets one request at a time: what came behind it waits, counted by the
budget of `edgeserve.serve.inflight`, while the socket is not read.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgeserve.serve.inflight import InflightBytes, RequestBytes
from edgeserve.serve.request_errors import RequestRejected

_MOST_URL = 4096
_MOST_HEADERS = 100
#: Of a request line and its headers, as they come.
_MOST_HEAD_BYTES = 36 * 1024
#: Bytes that wait and are not counted: there is always room for a usual head.
_UNCOUNTED = 16 * 1024
#: A body is handed on in pieces of about this many bytes.
_PIECE = 1 << 20
#: Of a body of chunks, what is parsed in one turn of the loop.
_TURN = 8 * 1024
#: Seconds for the request line and the headers; likewise for what is left of a body that nobody
#: wants any more.
_HEAD_S = 10.0
#: Other protocols that a client would rather speak: none is spoken here, and the parser would drop
#: the body of a request that names one.
_UPGRADE = re.compile(rb"(?i)(?<=\n)upgrade(?=[ \t]*:)")
#: Before a request; and how one begins: with the letters of its method.
_EMPTY_LINES, _BEGINNING = re.compile(rb"(?:\r\n)*"), re.compile(rb"[A-Z]{1,16}(?: |$)|\r?$")


class _TooMuch(Exception):
    """More of a request than anybody needs; ends the connection."""


class _Flow(FlowControl):
    """Flow control that does not read on while something that was read waits for its turn."""

    waiting = False

    def resume_reading(self) -> None:
        if not self.waiting:
            super().resume_reading()


class ConnectionLimits:
    """What the connections of an endpoint share.

    Args:
        inflight: The budget of bytes.
        most: Connections at a time. An idle one makes room for a new one.
        seconds: For a reader to take an answer.
    """

    def __init__(self, inflight: InflightBytes, most: int, seconds: float) -> None:
        self.inflight, self.most, self.seconds = inflight, most, seconds
        self.open: dict[Connection, None] = {}
        self.refused = 0

    def enter(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        if len(self.open) >= self.most:
            idle = next((one for one in self.open if one.idle), None)
            self.refused += 1
            if idle is None:
                return False
            idle.transport.abort()
            self.open.pop(idle, None)
        self.open[connection] = None
        return True


class Connection(HttpToolsProtocol):
    """uvicorn's connection, bounded."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*args, **named)
        self._limits = limits
        self._raw = b""
        self._waiting = RequestBytes(limits.inflight)
        self._body: RequestBytes | None = None
        #: Bytes of the body that are still to come; None: it is not known, or no body is read.
        self._left: int | None = None
        self._reading = self._ended = False
        #: Of a body of chunks: bytes of framing beyond the usual, those since the last byte of the
        #: body itself, and bytes of the body since the last look.
        self._framing = self._bare = self._grown = 0
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is read or answered."""
        return not (self._reading or self._running)

    @property
    def _running(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        if self._limits.enter(self):
            self._start_timer()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_answer_timer()
        self._raw = b""
        self._waiting.release()
        self._limits.open.pop(self, None)
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.body = bytearray()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._raw = self._raw + data if self._raw else data
        self._advance()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Who has sent all that there is to send may still read: the answer is written."""
        self._ended = True
        return self.scheme == "http" and self._running and not self._reading

    def _next(self) -> None:
        """Go on with what came behind the last request."""
        self._unset_keepalive_if_required()
        if self.parser is not None:
            self._advance()
            if self.cycle is None or len(self.cycle.body) <= _PIECE:
                self.flow.resume_reading()

    def _advance(self) -> None:
        """Hand on what has come, as far as it belongs to the request that is being read."""
        at, later = 0, False
        try:
            while at < len(self._raw) and not self.transport.is_closing():
                if self._reading:
                    # Chunks may be of a byte each: others get their turn in between.
                    if later := self._left is None and at > 0 and len(self._raw) - at > _TURN:
                        break
                    end = self._body_end(at)
                    self._feed(memoryview(self._raw)[at:end])
                    if self._left is None:
                        self._check_framing(end - at)
                else:
                    end = self._feed_head(at)
                if not end:
                    break
                at = end
            self._raw = self._raw[at:]
            self._waiting.set(max(0, len(self._raw) - _UNCOUNTED))
        except (RequestRejected, _TooMuch):
            self._refuse()
        if self.transport.is_closing():
            self._raw = b""
        self.flow.waiting = bool(self._raw) and (later or (self._running and not self._reading))
        if self.flow.waiting:
            self.flow.pause_reading()
            if later:
                self.loop.call_soon(self._next)
        elif self._ended and not self._running:
            self._close()

    def _feed_head(self, at: int) -> int:
        """Hand on a whole head, if there is one and the last request is answered; where it ends."""
        if self._running:
            return 0
        first = _EMPTY_LINES.match(self._raw, at).end()  # type: ignore[union-attr]
        if first - at > _MOST_HEAD_BYTES:
            raise _TooMuch
        end = self._raw.find(b"\r\n\r\n", first) + 4
        if 4 <= end <= first + _MOST_HEAD_BYTES:
            self._feed(_UPGRADE.sub(b"x-upgrade", self._raw[first:end]))
            return end
        if len(self._raw) - first > _MOST_HEAD_BYTES or not _BEGINNING.match(self._raw, first):
            raise _TooMuch
        if self._timer is None:
            self._start_timer()
        return first if first > at else 0

    def _body_end(self, at: int) -> int:
        """Where what has come of the body ends."""
        if self._left is None:
            return min(len(self._raw), at + _TURN)
        end = min(len(self._raw), at + self._left)
        self._left -= end - at
        if end == at:
            raise _TooMuch
        return end

    def _check_framing(self, count: int) -> None:
        """Refuse a body of chunks that is mostly framing: sizes, extensions, trailers.

        Args:
            count: Bytes that were fed since the last look.
        """
        self._framing += count
        grown, self._grown = self._grown, 0
        self._bare = 0 if grown else self._bare + count
        self._framing -= grown + grown // 8
        if max(self._framing, self._bare) > _MOST_HEAD_BYTES:
            raise _TooMuch

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            raise _TooMuch from None

    def on_message_begin(self) -> None:
        if self._reading or self._running:
            # Something behind a body of chunks, whose end only the parser knows. Its sender is
            # told by the answer's `connection: close` to send it again.
            self.cycle.keep_alive = False
            raise _TooMuch
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > _MOST_URL:
            raise _TooMuch

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MOST_HEADERS:
            raise _TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if not self.url.startswith(b"/"):
            raise _TooMuch
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise _TooMuch
        self._left = None if b"transfer-encoding" in headers else int(length[:20])
        self._reading, self._framing, self._bare, self._grown = True, 0, 0, 0
        self._body = RequestBytes(self._limits.inflight)
        self.scope["edgeserve.bytes"] = self._body  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Wake the application once for a body of usual size, not for each piece of it."""
        self._grown += len(body)
        if self.cycle.response_complete or self._body is None or self._body.full:
            return
        try:
            self._body.add(len(body))
        except RequestRejected:
            self._body.full = True
        else:
            self.cycle.body += body
        if len(self.cycle.body) > _PIECE or self._body.full:
            self.flow.pause_reading()
            self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._reading, self._left = False, None
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
            return
        if self._reading:  # nobody wants the rest of the body, and its end is waited for
            self._start_timer()
        if self._raw or self._ended:
            self.loop.call_soon(self._next)

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self._limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_answer_timer()

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
        self._close()

    def _close(self) -> None:
        """Close once all is written; who does not read it is not waited for."""
        self.transport.close()
        if self.transport.get_write_buffer_size() and self._answer_timer is None:
            self._answer_timer = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _refuse(self) -> None:
        """End a connection whose bytes are of no use; a request that was read is answered first."""
        self._raw = b""
        if self._running and not self._reading:
            self.cycle.keep_alive = False
        elif self._running and self.cycle.response_started:
            self._close()
        elif not self.transport.is_closing():
            self.send_400_response("")

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(_HEAD_S, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
