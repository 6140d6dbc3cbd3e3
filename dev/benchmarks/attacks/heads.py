"""Request heads, chunks and trailers without an end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import flood, forever, head

_LINE = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = b"POST /v2/models/tagger/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
_BODY = _CHUNKED + b"\r\n\r\n"


def _numbered() -> Iterator[bytes]:
    for i in itertools.count():
        yield b"".join(b"X-%d-%d: 1\r\n" % (i, j) for j in range(4000))


#: What a connection sends first, and what it repeats for ever.
_ENDLESS = {
    "value of a header": (_LINE + b"X: ", b"a"),
    "value of many spaces": (_LINE + b"X:", b" "),
    "name of a header": (_LINE, b"a"),
    "request line": (b"GET /", b"a"),
    "query": (b"GET /v2?", b"a=b&"),
    "method": (b"", b"A"),
    "version": (b"GET /v2 HTTP/1.", b"1"),
    "blank lines": (b"", b"\r\n"),
    "equal headers": (_LINE, b"X: 1\r\n"),
    "folded header": (_LINE + b"X: 1\r\n", b" 1\r\n"),
    "digits of a length": (_LINE + b"Content-Length: ", b"0"),
    "extension of a chunk": (_BODY + b"1;a=", b"a"),
    "extensions of chunks": (_BODY, b"1;a=" + b"b" * 4000 + b"\r\nx\r\n"),
    "size of a chunk": (_BODY, b"0"),
    "chunks of one byte": (_BODY, b"1\r\nx\r\n"),
    "value of a trailer": (_BODY + b"0\r\nX: ", b"a"),
    "trailers": (_BODY + b"0\r\n", b"X: 1\r\n"),
    "cookies": (_LINE, b"Cookie: a=b\r\n"),
}


def _add(name: str, first: bytes, more: bytes, count: int = 4) -> None:
    @attack(f"head: endless {name}")
    def run(target: Target, tally: Tally) -> None:
        flood(target, tally, count, lambda: itertools.chain([first], forever(more)))


for _name, (_first, _more) in _ENDLESS.items():
    _add(_name, _first, _more)


@attack("head: endless headers of other names")
def numbered(target: Target, tally: Tally) -> None:
    flood(target, tally, 4, lambda: itertools.chain([_LINE], _numbered()))


@attack("head: endless value, keys asked for", keys=True)
def with_keys(target: Target, tally: Tally) -> None:
    first = _LINE + b"Authorization: Bearer "
    flood(target, tally, 4, lambda: itertools.chain([first], forever(b"a")))


@attack("head: as large as allowed, whole, 50 connections")
def largest(target: Target, tally: Tally) -> None:
    request = head("GET", "/v2", *(f"X-{i}: {'a' * 300}" for i in range(80)))
    flood(target, tally, 50, lambda: itertools.repeat(request), wait=True)


@attack("head: nearly whole and held, 1000 connections")
def held(target: Target, tally: Tally) -> None:
    """Each holds what a head may have; together they are 30 MB."""
    first = _LINE + b"X: " + b"a" * 30_000
    flood(target, tally, 1000, lambda: itertools.chain([first], itertools.repeat(b"")), pace=0.05)
