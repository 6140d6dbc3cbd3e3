"""The fallback contract against endpoints that fail in every way, on a clock that a test turns.

    python -m benchmarks.faults [--calls 10000] [--live 1000]

Each cell is one fault at one share of requests, with a model on the device behind it. The clock is
virtual, so that a cell of 10,000 calls takes seconds and comes out the same each time; with
``--live`` four cells are repeated over real sockets and in real time.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import socket
import socketserver
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgeserve import oip
from edgeserve.errors import WrapperError
from edgeserve.processing import Processor
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.records import RanOn, Runtime, Tensors
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper.fallback.asking import Asking
from edgeserve.wrapper.fallback.call import Caller
from edgeserve.wrapper.fallback.contract import Fallback
from edgeserve.wrapper.fallback.pilot import Pilot
from edgeserve.wrapper.fallback.race import Fault, Message, Outcome, Reply

__all__ = ["FAULTS", "SHARES", "Cell", "World", "cell", "hedging", "main"]

FAULTS = ("rst", "black hole", "slow body", "garbage", "5xx", "429", "tls")
SHARES = (0.01, 0.1, 0.5, 1.0)
DEADLINE_MS, LOCAL_MS, EVERY_MS = 200.0, 15.0, 20.0
_MODEL_ID = "a" * 64
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 4)),),
)
_MANIFEST = Manifest(
    edgeserve="1.0", name="m", version=1, min_wrapper="0.1.0", model_id=_MODEL_ID, task="tensors",
    signature=_SIGNATURE, processing=Processing(),
)  # fmt: skip
_X = {"x": np.ones((1, 4), np.float32)}


def _good() -> Reply:
    answer = oip.Answer("m", "1", (oip.Tensor("y", _X["x"]),), parameters={"model_id": _MODEL_ID})
    body, head = oip.write_answer(answer, {"y": True})
    return Reply(200, {"inference-header-content-length": str(head)}, body)


class World:
    """A race of `edgeserve.wrapper.fallback.race` on a virtual clock.

    Args:
        fault: One of `FAULTS`.
        share: Of requests that meet it.
        seed: For all that is random.
    """

    def __init__(self, fault: str, share: float, seed: int, slow: float = 0.0) -> None:
        self.time, self.share, self.requests = 1000.0, share, 0
        self._fault, self._rng, self._slow = fault, random.Random(seed), slow
        self._ends: list[tuple[float, int, Outcome]] = []
        self._numbers = itertools.count()
        self._given_up: set[int] = set()
        self._reply = _good()

    def now(self) -> float:
        return self.time

    def start(self, url: str, message: Message, deadline: float) -> int:
        number = next(self._numbers)
        self.requests += 1
        after, outcome = self._outcome()
        if outcome is not None:
            heapq.heappush(self._ends, (self.time + after, number, outcome))
        return number

    def next(self, until: float) -> tuple[int, Outcome] | None:
        while self._ends and self._ends[0][0] <= until:
            at, number, outcome = heapq.heappop(self._ends)
            if number in self._given_up:
                continue
            self.time = max(self.time, at)
            return number, outcome
        self.time = max(self.time, until)
        return None

    def abandon(self, number: int) -> None:
        self._given_up.add(number)

    def _outcome(self) -> tuple[float, Outcome | None]:
        if self._rng.random() >= self.share:
            slow = self._rng.random() < self._slow
            mean = 1.0 if slow else 0.02
            return mean * self._rng.lognormvariate(0, 0.15), self._reply
        kinds: dict[str, tuple[float, Outcome | None]] = {
            "rst": (0.004, Fault("reset")),
            "black hole": (0.0, None),
            "slow body": (30.0, self._reply),
            "garbage": (0.02, Reply(200, {}, b"<html>busy</html>")),
            "5xx": (0.01, Reply(503, {}, b"")),
            "429": (0.004, Reply(429, {"retry-after": "1"}, b"")),
            "tls": (0.01, Fault("no trust in its certificate", again=False)),
        }
        return kinds[self._fault]


@dataclass
class Cell:
    """What a cell came to; times in milliseconds."""

    calls: int = 0
    failed: int = 0
    cloud: int = 0
    requests: int = 0
    took: list[float] = field(default_factory=list)
    opened_calls: int | None = None
    opened_s: float | None = None
    closed_s: float | None = None

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return float(np.percentile(self.took, 99))

    @property
    def extra(self) -> float:
        """Requests beyond one a call, as a share of calls."""
        return max(0.0, self.requests / self.calls - 1)


def _local(world: World) -> Callable[[Any], Tensors]:
    """A model on the device: it takes its time and is always right."""
    ran_on = RanOn(
        where="device", format="onnx", precision="fp32", sha256="", model_id=_MODEL_ID,
        runtime=Runtime(name="fake", version="1", delegate="cpu"),
    )  # fmt: skip

    def run(_: Any) -> Tensors:
        world.time += LOCAL_MS / 1e3
        answer = Tensors(y=_X["x"])
        answer.ran_on = ran_on
        return answer

    return run


def _pilot(
    world: World, contract: Fallback, local: Any, seed: int, lacking: Any = None
) -> tuple[Pilot, Caller]:
    around = Processor(_MANIFEST.processing, _SIGNATURE, "tensors")
    caller = Caller(
        contract.urls, contract.attempts, contract.budget, contract.hedge, contract.at_once,
        random.Random(seed),
    )  # fmt: skip
    asking = Asking(contract, _MANIFEST, around, races=lambda: world, caller=caller)
    return Pilot(contract, _MANIFEST, around, local, lacking, asking), caller


def cell(fault: str, share: float, calls: int, seed: int = 7) -> Cell:
    """One fault at one share, then half a minute of health."""
    world = World(fault, share, seed)
    contract = Fallback("https://cloud.example", when="always", deadline_ms=DEADLINE_MS)
    pilot, caller = _pilot(world, contract, _local(world), seed)
    [breaker] = caller.breakers.values()
    found, start = Cell(), world.time
    for i in range(calls):
        world.time = max(world.time, start + i * EVERY_MS / 1e3)
        _count(found, world, pilot)
        if breaker.keeps_away(world.time) and found.opened_calls is None:
            found.opened_calls, found.opened_s = i + 1, world.time - start
    found.requests = world.requests
    world.share, well = 0.0, world.time
    while breaker.keeps_away(world.time):
        world.time += EVERY_MS / 1e3
        pilot.answer(_X)
    found.closed_s = world.time - well
    return found


def _count(found: Cell, world: World, pilot: Pilot) -> None:
    began = world.time
    try:
        answer = pilot.answer(_X)
    except Exception:
        found.failed += 1
    else:
        assert answer.ran_on is not None
        found.cloud += answer.ran_on.where == "cloud"
    found.calls += 1
    found.took.append(1e3 * (world.time - began))


def hedging(calls: int, hedge: bool, seed: int = 7) -> Cell:
    """5 % of answers take a second; no model on the device."""
    world = World("rst", 0.0, seed, slow=0.05)
    contract = Fallback("https://cloud.example", when="missing", deadline_ms=5000, hedge=hedge)
    nothing = ("missing", WrapperError("EDGE-WRAPPER-001", "m", got="nothing", hint="none"))
    pilot, _ = _pilot(world, contract, None, seed, nothing)
    found, start = Cell(), world.time
    for i in range(calls):
        world.time = max(world.time, start + i * EVERY_MS / 1e3)
        _count(found, world, pilot)
    found.requests = world.requests
    return found


class _Faulty(socketserver.BaseRequestHandler):
    """A real endpoint with one real fault."""

    server: Any

    def handle(self) -> None:
        while self._request():
            if self.server.rng.random() < self.server.share:
                if not getattr(self, self.server.fault)():
                    return
                continue
            self.request.sendall(_wire(200, _good()))

    def _request(self) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.request.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self.request.recv(65536)
        return True

    def rst(self) -> bool:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()
        return False

    def black_hole(self) -> bool:
        self.server.over.wait(2)
        return False

    def slow_body(self) -> bool:
        whole = _wire(200, _good())
        for byte in whole[:-1]:
            if self.server.over.wait(0.02):
                return False
            try:
                self.request.sendall(bytes([byte]))
            except OSError:
                return False
        return False

    def garbage(self) -> bool:
        self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\0{]")
        return True


def _wire(status: int, reply: Reply) -> bytes:
    lines = "".join(f"{k}: {v}\r\n" for k, v in reply.headers.items())
    head = f"HTTP/1.1 {status} OK\r\ncontent-length: {len(reply.body)}\r\n{lines}\r\n"
    return head.encode() + reply.body


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


@contextmanager
def faulty(fault: str, share: float, seed: int = 7) -> Iterator[str]:
    """A real endpoint while the block runs; gives its URL."""
    server = _Server(("127.0.0.1", 0), _Faulty)
    server.fault, server.share = fault.replace(" ", "_"), share  # type: ignore[attr-defined]
    server.rng, server.over = random.Random(seed), threading.Event()  # type: ignore[attr-defined]
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


def live(fault: str, share: float, calls: int) -> Cell:
    """The same over real sockets, in real time."""
    found = Cell()
    with faulty(fault, share) as url:
        contract = Fallback(url, when="always", deadline_ms=DEADLINE_MS)
        around = Processor(_MANIFEST.processing, _SIGNATURE, "tensors")
        clock = World("rst", 0.0, 1)  # what the local model turns is nobody's clock here
        pilot = Pilot(contract, _MANIFEST, around, _local(clock))
        for _ in range(calls):
            began = time.perf_counter()
            answer = pilot.answer(_X)
            found.took.append(1e3 * (time.perf_counter() - began))
            found.calls += 1
            found.cloud += answer.ran_on.where == "cloud"
            found.requests += answer.ran_on.attempts
        pilot.close()
    return found


def main() -> int:
    """Print the table; exit 1 if a figure does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=0, help="calls of each cell in real time")
    given = parser.parse_args()
    good = True
    print(f"deadline {DEADLINE_MS:.0f} ms, {given.calls} calls a cell, virtual clock")
    print("fault       share answered   p99    max  cloud extra  opens (calls, s)  closes s")
    for fault, share in itertools.product(FAULTS, SHARES):
        one = cell(fault, share, given.calls)
        good &= _holds(one, share)
        print(f"{fault:11} {share:5.0%} {_line(one)}")
    plain, hedged = hedging(given.calls, False), hedging(given.calls, True)
    ratio = plain.p99 / hedged.p99
    good &= ratio >= 5 and hedged.extra <= 0.06
    told = f"p99 {plain.p99:.0f} -> {hedged.p99:.0f} ms ({ratio:.1f} x), extra {hedged.extra:.1%}"
    print(f"hedging, 5 % slow: {told}")
    for fault, share in (("rst", 0.5), ("black hole", 0.1), ("slow body", 0.5), ("garbage", 1.0)):
        if given.live:
            one = live(fault, share, given.live)
            late = max(one.took) <= DEADLINE_MS + 100 and one.p99 <= DEADLINE_MS
            good &= late
            median = statistics.median(one.took)
            print(f"live {fault:11} {share:5.0%} {_line(one)} median {median:.1f}")
    print("all hold" if good else "NOT all hold")
    return 0 if good else 1


def _line(one: Cell) -> str:
    answered = 1 - one.failed / one.calls
    opened = f"{one.opened_calls} {one.opened_s:.2f}" if one.opened_calls else "-"
    closed = f"{one.closed_s:.2f}" if one.closed_s is not None else "-"
    return (
        f"{answered:8.3%} {one.p99:6.1f} {max(one.took):6.1f} {one.cloud / one.calls:5.1%}"
        f" {one.extra:5.1%}  {opened:>16}  {closed:>8}"
    )


def _holds(one: Cell, share: float) -> bool:
    on_time = one.p99 <= DEADLINE_MS and max(one.took) <= DEADLINE_MS + 100
    # Where fewer than half of the calls fail, an endpoint is worth asking, and may stay closed.
    opens = share < 0.5 or (
        one.opened_calls is not None and (one.opened_calls <= 20 or (one.opened_s or 9) <= 2)
    )
    closes = one.closed_s is None or one.closed_s <= 5
    return one.failed <= one.calls / 1000 and on_time and one.extra <= 0.1 and opens and closes


if __name__ == "__main__":
    sys.exit(main())
