"""The timed loops: warm-up until times settle, then runs under a time budget with the GC off."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edgeserve.measure.stats import median

__all__ = ["Times", "once", "quiet", "repeat", "settled", "warm_up"]

#: Warm-up compares the medians of two neighbouring windows of this many runs.
_WINDOW = 5
#: Warm-up ends when they agree within this share.
_SETTLED = 0.05
#: `repeat` gives up on the minimum number of runs after this many budgets.
_PATIENCE = 3.0

_MS_PER_NS = 1e-6


class Times(NamedTuple):
    """Wall and CPU time of the same runs in milliseconds; CPU is summed over all threads."""

    wall: list[float]
    cpu: list[float]


def once(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one call.

    The CPU clock is read outside the wall clock: reading it is a system call, and would count.
    """
    cpu = time.process_time_ns()
    wall = time.perf_counter_ns()
    call()
    wall = time.perf_counter_ns() - wall
    cpu = time.process_time_ns() - cpu
    return wall * _MS_PER_NS, cpu * _MS_PER_NS


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Collect garbage now and not again until the block ends."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def settled(wall: list[float]) -> bool:
    """Whether the last two windows of runs took the same time."""
    if len(wall) < 2 * _WINDOW:
        return False
    before, now = median(wall[-2 * _WINDOW : -_WINDOW]), median(wall[-_WINDOW:])
    return abs(now - before) <= _SETTLED * before


def warm_up(call: Callable[[], object], max_runs: int, seconds: float) -> tuple[int, bool]:
    """Run until times settle, or ``max_runs`` or ``seconds`` are spent.

    Returns:
        How many runs were thrown away, and whether they settled.
    """
    wall: list[float] = []
    with quiet():
        end = time.perf_counter() + seconds
        while len(wall) < max_runs and not settled(wall):
            wall.append(once(call)[0])
            if time.perf_counter() > end:
                break
    return len(wall), settled(wall)


def repeat(call: Callable[[], object], min_runs: int, max_runs: int, seconds: float) -> Times:
    """Time ``call`` again and again: at least ``min_runs``, at most ``max_runs``, for ``seconds``.

    A call so slow that ``min_runs`` would take three times ``seconds`` is stopped there, with at
    least one run: the number of runs stands in the result.
    """
    times = Times([], [])
    with quiet():
        start = time.perf_counter()
        while len(times.wall) < max_runs:
            wall, cpu = once(call)
            times.wall.append(wall)
            times.cpu.append(cpu)
            spent = time.perf_counter() - start
            enough = spent >= seconds and len(times.wall) >= min_runs
            if enough or spent >= _PATIENCE * seconds:
                break
    return times
