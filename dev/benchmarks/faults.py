"""The fallback contract against endpoints that fail in every way, on a clock that a test turns.

    python -m dev.benchmarks.faults [--calls 10000] [--live 10000]

Each cell is one fault at one share of requests, with a model on the device behind it. The clock is
virtual, so that a cell of 10,000 calls takes seconds and comes out the same each time; with
``--live`` four cells are repeated over real sockets and in real time: 200 seconds for 10,000 calls.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgeserve import oip
from edgeserve.errors import WrapperError
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.processing import Processor
from edgeserve.types.manifest import Manifest
from edgeserve.types.processing import Processing
from edgeserve.types.records import RanOn, Runtime, Tensors
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.wrapper.fallback.hedged_call import HedgedCaller
from edgeserve.wrapper.fallback.policy import Fallback
from edgeserve.wrapper.fallback.remote_model import RemoteModel
from edgeserve.wrapper.fallback.router import FallbackRouter
from edgeserve.wrapper.fallback.transport import RequestFailure, RequestOutcome

FAULTS = ("rst", "black hole", "slow body", "garbage", "5xx", "429", "tls")
SHARES = (0.01, 0.1, 0.5, 1.0)
DEADLINE_MS, LOCAL_MS, EVERY_MS = 200.0, 15.0, 20.0
_MODEL_ID = "a" * 64
_SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 4)),),
)
_MANIFEST = Manifest(
    edgeserve="1.0",
    name="m",
    version=1,
    min_wrapper="0.1.0",
    model_id=_MODEL_ID,
    task="tensors",
    signature=_SIGNATURE,
    processing=Processing(),
)
FEED = {"x": np.ones((1, 4), np.float32)}


def good_reply() -> EndpointReply:
    answer = oip.InferResponse(
        "m", "1", (oip.Tensor("y", FEED["x"]),), parameters={"model_id": _MODEL_ID}
    )
    body, head = oip.write_response(answer, {"y": True})
    return EndpointReply(200, {"inference-header-content-length": str(head)}, body)


class World:
    """A race of `edgeserve.wrapper.fallback.transport` on a virtual clock.

    Args:
        fault: One of `FAULTS`.
        share: Of requests that meet it.
        seed: For all that is random.
    """

    def __init__(self, fault: str, share: float, seed: int, slow: float = 0.0) -> None:
        self.time, self.share, self.requests = 1000.0, share, 0
        self._fault, self._rng, self._slow = fault, random.Random(seed), slow
        self._ends: list[tuple[float, int, RequestOutcome]] = []
        self._numbers = itertools.count()
        self._given_up: set[int] = set()
        self._reply = good_reply()

    def now(self) -> float:
        return self.time

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds

    def wait(self, until: float) -> None:
        """Let it pass until then, if that is still to come."""
        self.time = max(self.time, until)

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number = next(self._numbers)
        self.requests += 1
        after, outcome = self._outcome()
        if outcome is not None:
            heapq.heappush(self._ends, (self.time + after, number, outcome))
        return number

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
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

    def _outcome(self) -> tuple[float, RequestOutcome | None]:
        if self._rng.random() >= self.share:
            slow = self._rng.random() < self._slow
            mean = 1.0 if slow else 0.02
            return mean * self._rng.lognormvariate(0, 0.15), self._reply
        kinds: dict[str, tuple[float, RequestOutcome | None]] = {
            "rst": (0.004, RequestFailure("reset")),
            "black hole": (0.0, None),
            "slow body": (30.0, self._reply),
            "garbage": (0.02, EndpointReply(200, {}, b"<html>busy</html>")),
            "5xx": (0.01, EndpointReply(503, {}, b"")),
            "429": (0.004, EndpointReply(429, {"retry-after": "1"}, b"")),
            "tls": (0.01, RequestFailure("its certificate is not trusted", retryable=False)),
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


def _local(world: Any) -> Callable[[Any], Tensors]:
    """A model on the device: it takes its time and is always right."""
    ran_on = RanOn(
        where="device",
        format="onnx",
        precision="fp32",
        sha256="",
        model_id=_MODEL_ID,
        runtime=Runtime(name="fake", version="1", delegate="cpu"),
    )

    def run(_: Any) -> Tensors:
        world.spend(LOCAL_MS / 1e3)
        answer = Tensors(y=FEED["x"])
        answer.ran_on = ran_on
        return answer

    return run


def pilot_of(
    world: Any, contract: Fallback, seed: int, races: Any = None, lacking: Any = None
) -> tuple[FallbackRouter, HedgedCaller]:
    """A contract at work, with a model on the device unless that is ``lacking``."""
    around = Processor(_MANIFEST.processing, _SIGNATURE, "tensors")
    caller = HedgedCaller(
        contract.urls,
        contract.attempts,
        contract.budget,
        contract.hedge,
        contract.at_once,
        random.Random(seed),
    )
    asking = RemoteModel(contract, _MANIFEST, around, requests=races, caller=caller)
    local = None if lacking else _local(world)
    return FallbackRouter(contract, _MANIFEST, around, local, lacking, asking), caller


def cell(fault: str, share: float, calls: int, seed: int = 7) -> Cell:
    """One fault at one share, then half a minute of health."""
    world = World(fault, share, seed)
    contract = Fallback("https://cloud.example", when="always", deadline_ms=DEADLINE_MS)
    pilot, caller = pilot_of(world, contract, seed, lambda: world)
    return played(world, pilot, caller, calls)


def played(world: Any, pilot: FallbackRouter, caller: HedgedCaller, calls: int) -> Cell:
    """Calls at an even pace while some fail; then health, until the breaker is closed."""
    [breaker] = caller.breakers.values()
    found, start = Cell(), world.now()
    for i in range(calls):
        world.wait(start + i * EVERY_MS / 1e3)
        _count(found, world, pilot)
        if breaker.is_open(world.now()) and found.opened_calls is None:
            found.opened_calls, found.opened_s = i + 1, world.now() - start
    found.requests = world.requests
    world.share, well = 0.0, world.now()
    while breaker.is_open(world.now()):
        world.spend(EVERY_MS / 1e3)
        pilot.answer(FEED)
    found.closed_s = world.now() - well
    return found


def _count(found: Cell, world: Any, pilot: FallbackRouter) -> None:
    began = world.now()
    try:
        answer = pilot.answer(FEED)
    except Exception:
        found.failed += 1
    else:
        assert answer.ran_on is not None
        found.cloud += answer.ran_on.where == "cloud"
    found.calls += 1
    found.took.append(1e3 * (world.now() - began))


def hedging(calls: int, hedge: bool, seed: int = 7) -> Cell:
    """5 % of answers take a second; no model on the device."""
    world = World("rst", 0.0, seed, slow=0.05)
    contract = Fallback("https://cloud.example", when="missing", deadline_ms=5000, hedge=hedge)
    nothing = ("missing", WrapperError("EDGE-WRAPPER-001", "m", got="nothing", hint="none"))
    pilot, _ = pilot_of(world, contract, seed, lambda: world, nothing)
    found, start = Cell(), world.time
    for i in range(calls):
        world.wait(start + i * EVERY_MS / 1e3)
        _count(found, world, pilot)
    found.requests = world.requests
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
    if given.live:
        from dev.benchmarks.faulty import CELLS, all_live

        for (fault, share), one in zip(CELLS, all_live(given.live), strict=True):
            good &= _holds(one, share)
            print(f"live {fault:11} {share:5.0%} {_line(one)}")
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
