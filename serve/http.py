"""One HTTP exchange over raw ASGI: headers read strictly, bodies within limits, answers written."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from edgeserve.serve.inflight import DECODERS, InflightBytes, RequestBytes, no_room
from edgeserve.serve.options import MB
from edgeserve.serve.request_errors import RequestRejected, error_body, rejected
from edgeserve.serve.telemetry import new_id

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_NUMBER = re.compile(rb"[0-9]{1,12}")
#: Answers shorter than this are not packed, even for who would take it.
_WORTH_PACKING = 1024
#: Answers up to this size are not counted: there is always room to tell that there is none.
_SMALL = 16 * 1024
#: What is unpacked at a time, bytes.
_PIECE = 1 << 20


class Exchange:
    """A request, and the way to answer it.

    Attributes:
        method: In capitals.
        parts: The path's parts, undecoded; a path with an escape or an empty part has none.
        headers: By lower-case name; of a header sent twice, the last.
        id: The sender's X-Request-Id, if it is one, else a new one.
        extra: Headers of each answer.
        came: When it came, on the monotonic clock.
    """

    def __init__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, inflight: InflightBytes
    ) -> None:
        self._receive, self._send = receive, send
        # Where the connection counts the pieces of a body itself, they are counted once.
        self._pieces: RequestBytes | None = scope.get("edgeserve.bytes")
        self._bytes = RequestBytes(inflight)
        self.came = time.monotonic()
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.parts = _parts(scope.get("raw_path") or scope["path"].encode())
        given = self.headers.get(b"x-request-id", b"")
        self.id = given.decode() if _ID.fullmatch(given) else new_id()
        self.status, self.sent = 0, 0
        self.closing = False
        self.extra: list[tuple[bytes, bytes]] = []
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

    def deadline(self, default_ms: float, most_ms: float) -> float:
        """When the answer is due, on the monotonic clock (X-Request-Deadline-Ms is from now)."""
        given = self.number(b"x-request-deadline-ms")
        return self.came + (default_ms if given is None else min(given, most_ms)) / 1e3

    async def body(self, limit: int, seconds: float) -> bytes | bytearray:
        """The body, unpacked.

        Raises:
            RequestRejected: EDGE-SERVE-013 too long, -014 damaged, -015 too slow, -028.
        """
        declared = self.number(b"content-length")
        if declared is not None and declared > limit:
            raise self._too_long(limit)
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        try:
            async with asyncio.timeout(seconds):
                packed = await self._all(limit)
                if encoding in (b"", b"identity"):
                    return packed
                loop = asyncio.get_running_loop()
                count = self._bytes.add
                return await loop.run_in_executor(DECODERS, inflate, packed, encoding, limit, count)
        except TimeoutError:
            self.closing = True
            if self._ended:  # it is all here, and was not unpacked in time: others are before it
                raise no_room() from None
            wanted = f"all of it within {seconds:g} s"
            raise rejected("EDGE-SERVE-015", "request body", wanted, "less") from None

    async def _all(self, limit: int) -> bytes | bytearray:
        whole: bytes | bytearray = b""
        while not self._ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._ended = True
                raise _bad_header(b"content-length", "the whole body")
            piece = message.get("body", b"")
            if len(whole) + len(piece) > limit:
                raise self._too_long(limit)
            self._count(len(piece))
            if not whole:
                whole = piece
            else:
                whole = bytearray(whole) if isinstance(whole, bytes) else whole
                whole += piece
            self._ended = not message.get("more_body", False)
        return whole

    def _count(self, count: int) -> None:
        """Count a piece that has come."""
        if self._pieces is None:
            self._bytes.add(count)
        elif self._pieces.full:
            self.closing = True
            raise no_room()

    def release(self) -> None:
        """The body and the answer are done with."""
        self._bytes.release()
        if self._pieces is not None:
            self._pieces.release()

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
        try:
            self._bytes.add(len(packed) if len(packed) > _SMALL else 0)
        except RequestRejected as error:
            status, packed, encoding = error.status, error_body(error.error, self.id), b""
            kind, headers = b"application/json", error.headers()
        self.status, self.sent = status, len(packed)
        lines = [
            (b"content-type", kind),
            (b"content-length", str(len(packed)).encode()),
            (b"x-request-id", self.id.encode()),
            *(headers or ()),
            *self.extra,
        ]
        if encoding:
            lines.append((b"content-encoding", encoding))
        if self.closing:
            lines.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
        large = len(packed) > _SMALL
        await self._send({"type": "http.response.body", "body": packed, "more_body": large})
        if large:  # the server sends this once nearly all is written: until then it is held
            await self._send({"type": "http.response.body", "body": b""})

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


def inflate(
    packed: bytes | bytearray, encoding: bytes, limit: int, count: Callable[[int], None]
) -> bytearray:
    """Unpack gzip or deflate, making no more than ``limit`` bytes whatever comes.

    Args:
        packed: The data.
        encoding: ``gzip`` or ``deflate``.
        limit: Of what comes out, bytes.
        count: Called with the length of each piece before it is kept; may raise.

    Raises:
        RequestRejected: EDGE-SERVE-014 another encoding or damaged data, -013 more than ``limit``.
    """
    bits = {b"gzip": 31, b"deflate": 15}.get(encoding)
    if bits is None:
        raise _not_unpacked("an encoding other than gzip and deflate", status=415)
    at = 0
    unpacker, whole, view = zlib.decompressobj(bits), bytearray(), memoryview(packed)
    for at in range(0, len(view), _PIECE):
        rest: bytes | memoryview = view[at : at + _PIECE]
        piece = None
        while piece is None or rest or len(piece) == _PIECE:
            try:
                piece = unpacker.decompress(rest, _PIECE)
            except zlib.error as error:
                raise _not_unpacked("damaged data") from error
            rest = unpacker.unconsumed_tail
            if len(whole) + len(piece) > limit:
                wanted = f"at most {limit // MB} MB unpacked"
                raise rejected("EDGE-SERVE-013", "request body", wanted, "more")
            count(len(piece))
            whole += piece
        if unpacker.eof and at + _PIECE < len(view):
            break
    if not unpacker.eof or unpacker.unused_data or at + _PIECE < len(view):
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
