"""HTTP/2 by hand on the port of gRPC: floods of frames, streams and settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from dev.benchmarks.attacks import frames
from dev.benchmarks.attacks.frames import frame
from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import flood, forever

_PIECE = 2000


def _each_stream(make: Callable[[int], bytes]) -> Callable[[], Iterator[bytes]]:
    """Frames for streams 1, 3, 5, ... as far as numbers go."""

    def pieces() -> Iterator[bytes]:
        yield frames.PREFACE
        for first in range(1, 1 << 30, 2 * _PIECE):
            yield b"".join(make(n) for n in range(first, first + 2 * _PIECE, 2))

    return pieces


def _again(*first: bytes, more: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: itertools.chain([frames.PREFACE, *first], forever(more))


_LIVE, _INFER = frames.call("ServerLive"), frames.call("ModelInfer")
_RESET = (8).to_bytes(4, "big")
_LONG = b"\0" * 16_000


def _open(block: bytes, flags: int = frames.END_HEADERS) -> Callable[[int], bytes]:
    return lambda stream: frame(frames.HEADERS, flags, stream, block)


def _whole(block: bytes, data: bytes) -> Callable[[int], bytes]:
    """A call with its message."""
    body = frames.message(data)
    return lambda stream: (
        frame(frames.HEADERS, frames.END_HEADERS, stream, block)
        + frame(frames.DATA, frames.END_STREAM, stream, body)
    )


def _with_reset(stream: int) -> bytes:
    return _open(_LIVE)(stream) + frame(frames.RST_STREAM, 0, stream, _RESET)


def _whole_with_reset(stream: int) -> bytes:
    return _whole(_INFER, b"")(stream) + frame(frames.RST_STREAM, 0, stream, _RESET)


_FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "rapid reset": _each_stream(_with_reset),
    "rapid reset of whole calls": _each_stream(_whole_with_reset),
    "streams opened and left": _each_stream(_open(_LIVE)),
    "whole calls": _each_stream(_whole(_LIVE, b"")),
    "calls that end without a message": _each_stream(
        _open(_LIVE, frames.END_HEADERS | frames.END_STREAM)
    ),
    "unknown methods": _each_stream(_whole(frames.call("Nothing"), b"")),
    "CONTINUATION": _again(
        frame(frames.HEADERS, 0, 1, _LIVE[:20]), more=frame(frames.CONTINUATION, 0, 1, _LONG)
    ),
    "CONTINUATION that is empty": _again(
        frame(frames.HEADERS, 0, 1, _LIVE[:20]), more=frame(frames.CONTINUATION, 0, 1)
    ),
    "PING": _again(more=frame(frames.PING, 0, 0, bytes(8))),
    "SETTINGS": _again(more=frame(frames.SETTINGS, 0, 0)),
    "SETTINGS that change": _again(
        more=frame(frames.SETTINGS, 0, 0, frames.setting(1, 0))
        + frame(frames.SETTINGS, 0, 0, frames.setting(1, 65536))
    ),
    "SETTINGS of 2700 entries": _again(
        more=frame(frames.SETTINGS, 0, 0, frames.setting(4, 65535) * 2700)
    ),
    "WINDOW_UPDATE": _again(more=frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
    "WINDOW_UPDATE beyond all": _again(more=frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")),
    "PRIORITY": _each_stream(lambda n: frame(frames.PRIORITY, 0, n, bytes(5))),
    "DATA that is empty": _again(_open(_LIVE)(1), more=frame(frames.DATA, 0, 1)),
    "DATA for no stream": _again(more=frame(frames.DATA, 0, 99, bytes(16_000))),
    "GOAWAY": _again(more=frame(frames.GOAWAY, 0, 0, bytes(8) + b"a" * 1000)),
    "frames of unknown kinds": _again(more=frame(99, 0, 0, bytes(16_000))),
    "a table filled and named": lambda: itertools.chain(
        [frames.PREFACE, _open(frames.line(b"a", b"b" * 3500, kept=True))(1)],
        (_open(b"\xbe" * 4000)(n) for n in itertools.count(3, 2)),
    ),
    "headers of 1 MB": _again(
        frame(frames.HEADERS, 0, 1, _LIVE),
        more=frame(frames.CONTINUATION, 0, 1, frames.line(b"a", b"b" * 15_000)),
    ),
    "random bytes after the preface": _again(more=bytes(range(256)) * 64),
    "HTTP/1.1": lambda: forever(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
}


def _add(name: str, pieces: Callable[[], Iterator[bytes]]) -> None:
    @attack(f"HTTP/2: {name}")
    def run(target: Target, tally: Tally) -> None:
        _flood(target, tally, 4, pieces)


def _flood(
    target: Target,
    tally: Tally,
    count: int,
    pieces: Callable[[], Iterator[bytes]],
    read: bool = True,
) -> None:
    flood(target, tally, count, pieces, port=target.grpc_port, read=read)


for _name, _pieces in _FLOODS.items():
    _add(_name, _pieces)


@attack("HTTP/2: answers never read")
def never_read(target: Target, tally: Tally) -> None:
    _flood(target, tally, 8, _each_stream(_whole(_LIVE, b"")), read=False)


@attack("HTTP/2: no window for answers")
def no_window(target: Target, tally: Tally) -> None:
    """Answers are ready and may not be sent."""
    metadata = _whole(frames.call("ServerMetadata"), b"")
    closed = frame(frames.SETTINGS, 0, 0, frames.setting(4, 0))
    pieces = _each_stream(metadata)

    def all_pieces() -> Iterator[bytes]:
        rest = pieces()
        yield next(rest) + closed
        yield from rest

    _flood(target, tally, 4, all_pieces)


@attack("HTTP/2: messages held before their end, 20 connections of 60 MB")
def held(target: Target, tally: Tally) -> None:
    announced = b"\0" + (60_000_000).to_bytes(4, "big")
    start = _open(_INFER)(1) + frame(frames.DATA, 0, 1, announced)
    data = frame(frames.DATA, 0, 1, bytes(16_000)) * 4

    def pieces() -> Iterator[bytes]:
        yield frames.PREFACE + start
        yield from itertools.repeat(data, 900)
        yield from itertools.repeat(b"")

    _flood(target, tally, 20, pieces)


@attack("HTTP/2: messages held, wrong key, 20 connections of 60 MB", keys=True)
def held_without_key(target: Target, tally: Tally) -> None:
    held(target, tally)


@attack("HTTP/2: 60 MB announced in each of 1000 streams")
def announced(target: Target, tally: Tally) -> None:
    first = b"\0" + (60_000_000).to_bytes(4, "big") + bytes(1000)

    def one(stream: int) -> bytes:
        return _open(_INFER)(stream) + frame(frames.DATA, 0, stream, first)

    def pieces() -> Iterator[bytes]:
        yield frames.PREFACE + b"".join(one(n) for n in range(1, 2001, 2))
        yield from itertools.repeat(b"")

    _flood(target, tally, 4, pieces)


@attack("HTTP/2: 1000 connections with a preface each")
def prefaces(target: Target, tally: Tally) -> None:
    pieces = lambda: itertools.chain([frames.PREFACE], itertools.repeat(b""))  # noqa: E731
    flood(target, tally, 1000, pieces, port=target.grpc_port, pace=0.05)
