"""One HTTP exchange over raw ASGI: headers read strictly, bodies within limits, answers written."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from edgeserve.serve.options import MB
from edgeserve.serve.request_errors import RequestRejected, rejected
from edgeserve.serve.telemetry import new_id

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_NUMBER = re.compile(rb"[0-9]{1,12}")
#: Answers shorter than this are not packed, even for who would take it.
_WORTH_PACKING = 1024


class InflightBytes:
    """Bytes of bodies that the endpoint holds at one time, over all connections."""

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    def add(self, count: int) -> None:
        """Take so many more.

        Raises:
            RequestRejected: EDGE-SERVE-028, that would be too many.
        """
        if self.held + count > self._most:
            wanted, got = "room for the request's body", "as many bytes in flight as it may hold"
            raise rejected("EDGE-SERVE-028", "endpoint", wanted, got, retry_after=1.0)
        self.held += count


class Exchange:
    """A request, and the way to answer it.

    Attributes:
        method: In capitals.
        parts: The path's parts, undecoded; a path with an escape or an empty part has none.
        headers: By lower-case name; of a header sent twice, the last.
        id: The sender's X-Request-Id, if it is one, else a new one.
        came: When it came, on the monotonic clock.
    """

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.came = time.monotonic()
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.parts = _parts(scope.get("raw_path") or scope["path"].encode())
        given = self.headers.get(b"x-request-id", b"")
        self.id = given.decode() if _ID.fullmatch(given) else new_id()
        self.status, self.sent = 0, 0
        self.closing = False
        self._held = 0
        self._ended = False

    def number(self, name: bytes) -> int | None:
        """A header that is a whole number; None: it is not there.

        Raises:
            RequestRejected: EDGE-SERVE-012, it is something else.
        """
        value = self.headers.get(name)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value.strip()):
            raise _bad_header(name, "a whole number of at most 12 digits")
        return int(value)

    def deadline(self, default_ms: float) -> float:
        """When the answer is due, on the monotonic clock (X-Request-Deadline-Ms is from now)."""
        given = self.number(b"x-request-deadline-ms")
        return self.came + (default_ms if given is None else min(given, 3_600_000)) / 1e3

    async def body(self, limit: int, seconds: float, weight: InflightBytes) -> bytes:
        """The body, unpacked.

        Raises:
            RequestRejected: EDGE-SERVE-013 too long, -014 damaged, -015 too slow, -028.
        """
        declared = self.number(b"content-length")
        if declared is not None and declared > limit:
            raise self._too_long(limit)
        try:
            packed = await asyncio.wait_for(self._all(limit, weight), seconds)
        except TimeoutError:
            self.closing = True
            wanted = f"all of it within {seconds:g} s"
            raise rejected("EDGE-SERVE-015", "request body", wanted, "less") from None
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding in (b"", b"identity"):
            return packed
        self._hold(min(limit, 64 * len(packed)), weight)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, inflate, packed, encoding, limit)

    async def _all(self, limit: int, weight: InflightBytes) -> bytes:
        pieces: list[bytes] = []
        length = 0
        while not self._ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._ended = True
                raise _bad_header(b"content-length", "the whole body")
            piece = message.get("body", b"")
            length += len(piece)
            if length > limit:
                raise self._too_long(limit)
            self._hold(len(piece), weight)
            if piece:
                pieces.append(piece)
            self._ended = not message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _hold(self, count: int, weight: InflightBytes) -> None:
        weight.add(count)
        self._held += count

    def release(self, weight: InflightBytes) -> None:
        """The bodies are done with."""
        weight.held -= self._held
        self._held = 0

    def _too_long(self, limit: int) -> RequestRejected:
        self.closing = True
        return rejected("EDGE-SERVE-013", "request body", f"at most {limit // MB} MB", "more")

    async def answer(
        self,
        status: int,
        body: bytes,
        kind: bytes = b"application/json",
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Send the response; packed where the caller takes it and it is worth it."""
        packed, encoding = self._packed(body)
        self.status, self.sent = status, len(packed)
        lines = [
            (b"content-type", kind),
            (b"content-length", str(len(packed)).encode()),
            (b"x-request-id", self.id.encode()),
            *(headers or ()),
        ]
        if encoding:
            lines.append((b"content-encoding", encoding))
        if self.closing:
            lines.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
        await self._send({"type": "http.response.body", "body": packed})

    def _packed(self, body: bytes) -> tuple[bytes, bytes]:
        if len(body) < _WORTH_PACKING:
            return body, b""
        wanted = self.headers.get(b"accept-encoding", b"").lower()
        names = {part.partition(b";")[0].strip() for part in wanted.split(b",")}
        if b"gzip" in names and not _names_many_encodings(names):
            return _deflate(body, 31), b"gzip"
        if b"deflate" in names and not _names_many_encodings(names):
            return _deflate(body, 15), b"deflate"
        return body, b""


def _names_many_encodings(names: set[bytes]) -> bool:
    """Whether these are the encodings that an HTTP library always names, asked or not.

    Packing floats costs many times what the run of a small model costs and saves a few per cent, so
    it is done only for who asks for one encoding alone, as the protocol's clients do.
    """
    return len(names - {b"identity"}) > 1


def _deflate(body: bytes, bits: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, bits)
    return packer.compress(body) + packer.flush()


def inflate(packed: bytes, encoding: bytes, limit: int) -> bytes:
    """Unpack gzip or deflate, making no more than ``limit`` bytes whatever comes.

    Raises:
        RequestRejected: EDGE-SERVE-014 another encoding or damaged data, -013 more than ``limit``.
    """
    bits = {b"gzip": 31, b"deflate": 15}.get(encoding)
    if bits is None:
        raise _not_unpacked("an encoding other than gzip and deflate", status=415)
    unpacker = zlib.decompressobj(bits)
    try:
        whole = unpacker.decompress(packed, limit + 1)
    except zlib.error as error:
        raise _not_unpacked("damaged data") from error
    if len(whole) > limit:
        wanted = f"at most {limit // MB} MB unpacked"
        raise rejected("EDGE-SERVE-013", "request body", wanted, "more")
    if not unpacker.eof or unpacker.unused_data:
        raise _not_unpacked("data that ends early, or goes on after its end")
    return whole


def _parts(path: bytes) -> tuple[str, ...]:
    """The parts of a path; what is escaped or odd has none, so that no route fits it."""
    if not path.startswith(b"/") or not re.fullmatch(rb"[A-Za-z0-9._/-]{1,1024}", path):
        return ()
    parts = tuple(path[1:].decode().split("/"))
    return () if any(part in ("", ".", "..") for part in parts) else parts


def _bad_header(name: bytes, wanted: str) -> RequestRejected:
    return rejected("EDGE-SERVE-012", f"header {name.decode()}", wanted, "something else")


def _not_unpacked(got: str, status: int | None = None) -> RequestRejected:
    wanted = "gzip or deflate, as Content-Encoding says"
    return rejected("EDGE-SERVE-014", "request body", wanted, got, status=status)
