"""How many runs side by side, and with how many threads each: by a short measurement.

The number of cores does not say it: a quota, a neighbour or the model itself may make four threads
slower than one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edgeserve.environment import usable_cores

__all__ = ["Pace", "Plan", "candidates", "measure", "pick"]

#: What one candidate is tried for, seconds, and runs at least.
_SECONDS = 0.25
_RUNS = 3
#: More throughput than this, and more runs side by side are worth the longer single answer.
_WORTH = 1.1


class Plan(NamedTuple):
    """Threads of one run, and runs side by side."""

    threads: int
    workers: int


class Pace(NamedTuple):
    """What a plan gives: answers a second, and seconds for one of them."""

    rate: float
    seconds: float


def candidates(threads: int | None, workers: int | None, cores: int | None = None) -> list[Plan]:
    """Plans worth trying: what is given is kept, and no more threads than cores in all."""
    cores = cores or usable_cores()
    if threads and workers:
        return [Plan(threads, workers)]
    if threads:
        return [Plan(threads, n) for n in sorted({1, max(1, cores // threads)})]
    if workers:
        return [Plan(n, workers) for n in sorted({1, max(1, cores // workers)})]
    halves = max(1, cores // 2)
    return sorted({Plan(cores, 1), Plan(halves, cores // halves), Plan(1, cores)}, key=_by_workers)


def _by_workers(plan: Plan) -> int:
    return plan.workers


def pick(paces: dict[Plan, Pace]) -> Plan:
    """The fewest runs side by side whose throughput is near the best: each answer comes sooner."""
    best = max(pace.rate for pace in paces.values())
    good = [plan for plan, pace in paces.items() if pace.rate * _WORTH >= best]
    return min(good, key=lambda plan: (plan.workers, paces[plan].seconds))


def measure(run: Callable[[], object], workers: int, seconds: float = _SECONDS) -> Pace:
    """Call ``run`` from so many threads at a time for a moment."""
    run()  # the first run also sets memory up
    times: list[float] = []
    began = time.perf_counter()

    def work() -> None:
        for _ in _until(began + seconds):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)

    others = [threading.Thread(target=work) for _ in range(workers - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    took = time.perf_counter() - began
    return Pace(len(times) / took, sorted(times)[len(times) // 2])


def _until(end: float) -> Iterator[int]:
    done = 0
    while done < _RUNS or time.perf_counter() < end:
        yield done
        done += 1
