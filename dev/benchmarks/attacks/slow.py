"""Clients that take their time: to ask, to send a body, to read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import drip, flood, forever, head, post


@attack("slow: heads, a byte a second, 500 connections")
def heads(target: Target, tally: Tally) -> None:
    drip(target, tally, 500, b"GET /v2 HTTP/1.1\r\nX: ", b"a", 1.0)


@attack("slow: bodies of 60 MB, a byte a second, 300 connections")
def small_drops(target: Target, tally: Tally) -> None:
    drip(target, tally, 300, head("POST", target.infer, "Content-Length: 60000000"), b"{", 1.0)


@attack("slow: bodies held before their last byte, 20 of 60 MB")
def held(target: Target, tally: Tally) -> None:
    """Nearly all of a body is sent as fast as it is taken, and the end never."""
    request = post(target.infer, b" " * 60_000_000, "X-Request-Deadline-Ms: 3600000")[:-1]
    _hold(target, tally, 20, request)


@attack("slow: bodies held before their last byte, 2000 of 300 KB")
def many_held(target: Target, tally: Tally) -> None:
    request = post(target.infer, b" " * 300_000, "X-Request-Deadline-Ms: 3600000")[:-1]
    _hold(target, tally, 2000, request)


@attack("slow: bodies held, wrong key, 20 of 60 MB", keys=True)
def held_without_key(target: Target, tally: Tally) -> None:
    request = post(target.infer, b" " * 60_000_000, "X-API-Key: wrong")[:-1]
    _hold(target, tally, 20, request)


def _hold(target: Target, tally: Tally, count: int, request: bytes) -> None:
    flood(target, tally, count, lambda: itertools.chain([request], itertools.repeat(b"")))


@attack("slow: body of a GET, a byte in 0.5 s, 200 connections")
def body_of_a_get(target: Target, tally: Tally) -> None:
    drip(target, tally, 200, head("GET", "/v2", "Content-Length: 1000000"), b"x")


@attack("slow: fast body of a GET that has an answer, 8 connections")
def fast_body_of_a_get(target: Target, tally: Tally) -> None:
    first = head("GET", "/v2", "Content-Length: 60000000000")
    flood(target, tally, 8, lambda: itertools.chain([first], forever(b"x")), read=False)


@attack("slow: chunks of a GET, 200 connections")
def chunks_of_a_get(target: Target, tally: Tally) -> None:
    drip(target, tally, 200, head("GET", "/v2", "Transfer-Encoding: chunked"), b"1\r\nx\r\n")


@attack("slow: reading one byte in 0.2 s, 100 connections")
def reading(target: Target, tally: Tally) -> None:
    """Answers of 20 KB, asked for again and again, of which hardly a byte is taken."""

    def pieces() -> Iterator[bytes]:
        while True:
            yield head("GET", "/openapi.json")

    flood(target, tally, 100, pieces, read=False, pace=0.2)


@attack("slow: answers of megabytes never read, 20 connections")
def large_answers(target: Target, tally: Tally) -> None:
    """Batches that the model takes, answered as JSON, and left lying."""
    row = "0.5," * (3 * 8 * 8)
    body = '{"inputs":[{"name":"image","shape":[8,3,8,8],"datatype":"FP32","data":[%s0.5]}]}'
    request = post(target.infer, (body % (row * 8)[:-8]).encode())
    flood(target, tally, 20, lambda: itertools.repeat(request), read=False)
