"""Requests that are sent ahead of their answers, which nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import flood, forever, head, post


def _never_read(name: str, count: int, request: bytes) -> None:
    @attack(f"pipelining: {name}")
    def run(target: Target, tally: Tally) -> None:
        data = request.replace(b"/tagger/", f"/{target.model}/".encode())
        flood(target, tally, count, lambda: forever(data), read=False)


_JUNK = b'{"inputs": []}'
_never_read("GET, 1 connection", 1, head("GET", "/v2"))
_never_read("GET, 8 connections", 8, head("GET", "/v2"))
_never_read("GET, 20 connections", 20, head("GET", "/v2"))
_never_read("HEAD, 8 connections", 8, head("HEAD", "/v2/health/live"))
_never_read("POST, 8 connections", 8, post("/v2/models/tagger/infer", _JUNK))
_never_read("POST without a body, 8 connections", 8, post("/v2/models/tagger/predict", b""))
_never_read("large answers, 20 connections", 20, head("GET", "/openapi.json"))
_never_read("metrics, 20 connections", 20, head("GET", "/metrics"))
_never_read("unknown paths, 8 connections", 8, head("GET", "/nothing"))


@attack("pipelining: a large body in front, 8 connections")
def behind_a_body(target: Target, tally: Tally) -> None:
    """Requests queue behind a body that never comes to its end."""

    def pieces() -> Iterator[bytes]:
        yield head("POST", target.infer, "Transfer-Encoding: chunked")
        yield from forever(b"a\r\n0123456789\r\n")

    flood(target, tally, 8, pieces, read=False)


@attack("pipelining: all answers read, 20 connections")
def read_all(target: Target, tally: Tally) -> None:
    """The same load by a client that reads."""
    flood(target, tally, 20, lambda: forever(head("GET", "/v2/health/ready")))
