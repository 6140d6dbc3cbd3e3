"""HTTP that is meant otherwise: upgrades, expectations, other protocols, odd ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies, drip, flood, forever, head, post

_H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
)
_NUMBERS = b",".join([b"0.5"] * 192)
_TENSOR = b'{"name":"image","shape":[1,3,8,8],"datatype":"FP32","data":[%s]}' % _NUMBERS
_GOOD = b'{"inputs":[%s]}' % _TENSOR


@attack("protocol: POST with an upgrade to h2c that is ignored")
def upgrade(target: Target, tally: Tally) -> None:
    """As Java's client asks by default; each is to be answered as HTTP/1.1."""
    bodies(target, tally, target.infer, _GOOD, *_H2C)
    if tally.statuses["200"] == 0:
        tally.wrong.append("no POST with `Upgrade: h2c` was answered with 200")


@attack("protocol: upgrade with a body that never ends")
def upgrade_endless(target: Target, tally: Tally) -> None:
    first = head("POST", target.infer, "Transfer-Encoding: chunked", *_H2C)
    flood(target, tally, 8, lambda: itertools.chain([first], forever(b"a\r\n0123456789\r\n")))


@attack("protocol: bytes of HTTP/2 after an upgrade")
def upgrade_frames(target: Target, tally: Tally) -> None:
    first = head("GET", "/v2/health/live", *_H2C) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    flood(target, tally, 8, lambda: itertools.chain([first], forever(bytes(9))))


@attack("protocol: websocket asked for, 8 connections")
def websocket(target: Target, tally: Tally) -> None:
    lines = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"
    request = head("GET", "/v2", *lines, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    flood(target, tally, 8, lambda: itertools.repeat(request), wait=True)


@attack("protocol: Expect: 100-continue, and no body, 500 connections")
def expect(target: Target, tally: Tally) -> None:
    lines = "Expect: 100-continue", "Content-Length: 60000000", "X-Request-Deadline-Ms: 3600000"
    first = head("POST", target.infer, *lines)
    flood(target, tally, 500, lambda: itertools.chain([first], itertools.repeat(b"")), pace=0.05)


@attack("protocol: Expect: 100-continue, pipelined without reading")
def expect_pipelined(target: Target, tally: Tally) -> None:
    request = post(target.infer, b"{}", "Expect: 100-continue")
    flood(target, tally, 8, lambda: forever(request), read=False)


@attack("protocol: random bytes")
def random_bytes(target: Target, tally: Tally) -> None:
    import random

    data = random.Random(1).randbytes(1 << 20)
    flood(target, tally, 8, lambda: itertools.repeat(data))


@attack("protocol: preface of HTTP/2 on the port of REST")
def preface(target: Target, tally: Tally) -> None:
    first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    flood(target, tally, 8, lambda: itertools.chain([first], forever(bytes(9))))


@attack("protocol: HTTP/1.0 that stays, 100 connections")
def old(target: Target, tally: Tally) -> None:
    first = b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    drip(target, tally, 100, first, first)


@attack("protocol: a request id in every request that is none")
def request_ids(target: Target, tally: Tally) -> None:
    request = head("GET", "/v2", "X-Request-Id: " + "\x7f" * 4000)
    flood(target, tally, 20, lambda: itertools.repeat(request), wait=True)


@attack("protocol: another path in every request")
def paths(target: Target, tally: Tally) -> None:
    """What counts by path or model must not grow with what strangers invent."""
    numbers = itertools.count()

    def requests() -> Iterator[bytes]:
        return (head("GET", f"/v2/models/m{i}-{'a' * 200}/ready") for i in numbers)

    flood(target, tally, 20, requests, wait=True)


@attack("protocol: another wrong key in every request", keys=True)
def keys(target: Target, tally: Tally) -> None:
    numbers = itertools.count()
    flood(
        target,
        tally,
        20,
        lambda: (head("GET", "/v2", f"X-API-Key: k{i}-{'a' * 500}") for i in numbers),
        wait=True,
    )
