"""One attack from start to verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dev.benchmarks.attacks.endpoint import OTHER_CORE, Endpoint
from dev.benchmarks.attacks.registry import Attack, Target
from dev.benchmarks.attacks.watch import ROOT, Sampler, probing

#: What an endpoint may take beyond ``--inflight-mb``, MB, and what others may wait, milliseconds.
EXTRA_MB, P99_MS = 64.0, 250.0
#: An attacker that has not ended so many seconds after its time is ended.
_GRACE_S = 30.0
#: How much an endpoint may take at all, MB, before it is killed to spare the machine.
_CEILING_MB = 4096.0
#: Endpoints that run at one time; all but one of them are idle.
_AT_ONCE = 6

Start = Callable[[Attack, Path], AbstractContextManager[Endpoint]]


@dataclass(frozen=True)
class Settings:
    """How attacks are run.

    Attributes:
        seconds: Of an attack.
        after_s: Seconds for which memory is sampled after it.
        inflight_mb: The endpoint's budget of bodies.
        body_mb: The endpoint's limit of a body.
    """

    seconds: float = 5.0
    after_s: float = 60.0
    inflight_mb: int = 128
    body_mb: int = 64


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an attack did.

    Attributes:
        name: Of the attack.
        warm_mb: Memory of the process tree after the warm-up.
        peak_mb: The most during and after the attack.
        end_mb: At the end.
        p50_ms: Of `health/live` for others during the attack; also p99 and the longest ever.
        sent_mb: By the attacker.
        connections: That the attacker made.
        statuses: What the attacker was answered.
        faults: Entries of this kind in the endpoint's log.
        failures: What did not hold; empty: everything did.
    """

    name: str
    warm_mb: float
    peak_mb: float
    end_mb: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    probes: int
    sent_mb: float
    connections: int
    statuses: dict[str, int]
    faults: int
    failures: list[str]
    quick: bool = False


def run(
    attack: Attack, start: Start, folder: Path, settings: Settings, turn: threading.Lock
) -> Outcome:
    """Start an endpoint, attack it, and judge what was seen.

    Args:
        attack: Which.
        start: Starts the endpoint for an attack and a folder.
        folder: For logs and keys.
        settings: Times and limits.
        turn: Held until the endpoint has recovered; the rest of the time it is only sampled, while
            the next attack goes on.

    Raises:
        TimeoutError: The endpoint did not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with turn:
            made = stack.enter_context(start(attack, folder))
            before = made.warm_up()
            sampler = Sampler(made.process.pid, _CEILING_MB)
            sampler.start()
            time.sleep(0.3)
            with probing(made.port, attack.tls) as prober:
                began = time.monotonic()
                tally = attack_once(attack, made, settings)
                began, ended = max(began, tally["began"]), time.monotonic()
                well = _recovers(made, before)
        time.sleep(max(0.0, ended + settings.after_s - time.monotonic()))
        sampler.end()
        code = made.process.poll()
    faults = (folder / "log").read_bytes().count(b'"event":"fault"')
    waits = prober.between(began, ended)
    warm, peak = sampler.peak_mb(0.0, began), sampler.peak_mb(began)
    limit = settings.inflight_mb + EXTRA_MB
    found = {
        f"{peak - warm:.0f} MB above the warm-up, {limit:.0f} are allowed": peak - warm > limit,
        f"killed at {_CEILING_MB:.0f} MB": sampler.killed,
        f"the endpoint has ended with {code}": code is not None and not sampler.killed,
        f"others wait {waits.p99:.0f} ms (p99)": waits.p99 > P99_MS and not attack.files,
        "a good request is not answered right afterwards": code is None and not well,
        f"{faults} faults in the log": faults > 0,
    }
    return Outcome(
        name=attack.name,
        warm_mb=round(warm, 1),
        peak_mb=round(peak, 1),
        end_mb=round(sampler.samples[-1][1], 1),
        p50_ms=round(waits.p50, 1),
        p99_ms=round(waits.p99, 1),
        longest_ms=round(max((1e3 * wait for _, wait in prober.waits), default=0.0), 1),
        probes=waits.probes,
        sent_mb=round(tally["sent"] / 2**20, 1),
        connections=tally["connections"],
        statuses=tally["statuses"],
        faults=faults,
        failures=[line for line, failed in found.items() if failed] + tally["wrong"][:3],
    )


def _recovers(made: Endpoint, before: str, seconds: float = 20.0) -> bool:
    """Whether a good request is answered right within that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and made.process.poll() is None:
        if made.well(before):
            return True
        time.sleep(0.2)
    return False


def attack_once(attack: Attack, made: Endpoint, settings: Settings) -> dict[str, Any]:
    """Attack from a process of its own on the other core; what it counted."""
    asked = {
        "name": attack.name,
        "port": made.port,
        "grpc_port": made.grpc_port,
        "seconds": settings.seconds,
        "body_mb": settings.body_mb,
        "model": made.served.model,
        "tls": attack.tls,
    }
    command = ["taskset", "-c", OTHER_CORE, "nice", "-n", "10", sys.executable]
    command += ["-m", "dev.benchmarks.attacks.attacker", json.dumps(asked)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=settings.seconds + _GRACE_S, check=False, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return _empty("the attacker did not end: a bounded attack is to end by itself")
    if done.returncode:
        return _empty(f"the attacker failed: {done.stderr[-300:]!r}")
    tally: dict[str, Any] = json.loads(done.stdout)
    return tally


def _empty(why: str) -> dict[str, Any]:
    return {"sent": 0, "connections": 0, "statuses": {}, "began": 0.0, "wrong": [why]}


def run_all(
    attacks: list[Attack],
    start: Start,
    folder: Path,
    settings: Settings,
    budget_s: float = float("inf"),
) -> Iterator[Outcome]:
    """The outcomes of all as they come: one attack at a time, and some endpoints that cool down.

    Args:
        attacks: Which.
        start: Starts an endpoint.
        folder: For logs and keys.
        settings: Times and limits.
        budget_s: Seconds after which no attack begins.
    """
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    turn, until = threading.Lock(), time.monotonic() + budget_s

    def one(attack: Attack, number: int) -> Outcome | None:
        where = folder / f"attack{number}"
        return run(attack, start, where, settings, turn) if time.monotonic() < until else None

    with ThreadPoolExecutor(max(1, min(_AT_ONCE, int(settings.after_s / 5)))) as pool:
        jobs = [pool.submit(one, attack, i) for i, attack in enumerate(attacks)]
        for job in as_completed(jobs):
            if outcome := job.result():
                yield outcome


def target_of(asked: dict[str, Any]) -> tuple[str, Target]:
    """The attack's name and its target, as `attack_once` writes them."""
    name = asked.pop("name")
    return name, Target(**asked)
