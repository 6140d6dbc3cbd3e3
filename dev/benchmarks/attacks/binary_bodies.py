"""Tensors in binary: lengths that lie, tensors without number, strings without content."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies, flood, post

_MB = 1 << 20


def _asked(*tensors: dict[str, object]) -> bytes:
    return json.dumps({"inputs": tensors}).encode()


def _tensor(size: object, shape: object = (1, 3, 8, 8), kind: str = "FP32") -> dict[str, object]:
    more = {"parameters": {"binary_data_size": size}}
    return {"name": "image", "shape": shape, "datatype": kind} | more


def _bytes(length: int, unit: bytes, count: int) -> tuple[bytes, bytes]:
    """A tensor of strings: what its JSON says and its bytes."""
    data = unit * count
    return _asked(_tensor(length or len(data), [count], "BYTES") | {"name": "raw"}), data


#: JSON, the bytes after it, and what the header says the JSON's length is, relative to the truth.
_CASES: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "more bytes announced than sent": lambda: (_asked(_tensor(60 * _MB)), bytes(1000)),
    "fewer bytes announced than sent": lambda: (_asked(_tensor(768)), bytes(60 * _MB)),
    "a length of 10^18": lambda: (_asked(_tensor(10**18)), bytes(768)),
    "a length below zero": lambda: (_asked(_tensor(-1)), bytes(768)),
    "a length that is a list": lambda: (_asked(_tensor([[]] * 100_000)), bytes(768)),
    "a shape that multiplies to 2^64": lambda: (_asked(_tensor(768, [2**32, 2**32])), bytes(768)),
    "a shape with zeros": lambda: (_asked(_tensor(0, [0, 2**40, 3])), b""),
    "a batch of 2^31": lambda: (_asked(_tensor(768, [2**31, 3, 8, 8])), bytes(768)),
    "a batch of 60 MB": lambda: (_asked(_tensor(60 * _MB, [81920, 3, 8, 8])), bytes(60 * _MB)),
    "100,000 tensors": lambda: (_asked(*[_tensor(0)] * 100_000), b""),
    "15 million empty strings": lambda: _bytes(0, b"\0\0\0\0", 15 * _MB),
    "12 million strings of one byte": lambda: _bytes(0, b"\1\0\0\0a", 12 * _MB),
    "a string longer than all": lambda: _bytes(0, b"\xff\xff\xff\xff", 1),
}


def _add(name: str, make: Callable[[], tuple[bytes, bytes]]) -> None:
    @attack(f"binary: {name}")
    def run(target: Target, tally: Tally) -> None:
        asked, data = make()
        line = f"Inference-Header-Content-Length: {len(asked)}"
        bodies(target, tally, target.infer, asked + data, line)


for _name, _make in _CASES.items():
    _add(_name, _make)


@attack("binary: the JSON longer than the body")
def longer(target: Target, tally: Tally) -> None:
    line = "Inference-Header-Content-Length: 999999999999"
    bodies(target, tally, target.infer, _asked(_tensor(768)) + bytes(768), line)


@attack("binary: all of the body is JSON")
def all_json(target: Target, tally: Tally) -> None:
    body = b" " * (60 * _MB)
    line = f"Inference-Header-Content-Length: {len(body)}"
    bodies(target, tally, target.infer, body, line)


@attack("binary: 60 MB, wrong key, 20 connections", keys=True)
def without_key(target: Target, tally: Tally) -> None:
    bodies(target, tally, target.infer, bytes(60 * _MB), "X-API-Key: wrong", count=20)


@attack("binary: 60 MB, deadline of an hour, 20 connections")
def an_hour(target: Target, tally: Tally) -> None:
    asked, data = _CASES["a batch of 60 MB"]()
    line = f"Inference-Header-Content-Length: {len(asked)}"
    hour = "X-Request-Deadline-Ms: 3600000"
    bodies(target, tally, target.infer, asked + data, line, hour, count=20)


@attack("binary: deadlines of no time and of all time, 50 connections")
def deadlines(target: Target, tally: Tally) -> None:
    values = itertools.cycle(("999999999999", "0", "1"))

    def requests() -> Iterator[bytes]:
        return (
            post(target.predict, bytes(1000), f"X-Request-Deadline-Ms: {next(values)}")
            for _ in itertools.count()
        )

    flood(target, tally, 50, requests, wait=True)
