"""Which of two functions is faster, and by how much: interleaved runs, a ratio with its interval.

Runs of A and B alternate in random order, so that whatever the machine does meanwhile hits both.
The answer is a ratio of medians: unlike two absolute times it survives another machine, and its
interval says whether the difference is more than luck::

    print(compare(lambda: wrapper.predict(feed), lambda: session.run(feed)).summary())
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from edgeserve.measure.stats import median, ratio_of_medians
from edgeserve.measure.timing import RunTimes, gc_paused, time_once, warm_up
from edgeserve.types.base import Number, Value, number, plain
from edgeserve.types.reports import Timing


class Ratio(Value, frozen=True):
    """A over B with its 95 % bootstrap interval: 0.5 means that A takes half as long."""

    value: Number
    lower: Number
    upper: Number


class Comparison(Value, frozen=True):
    """Two functions compared.

    Attributes:
        a: Times of the first, ms.
        b: Times of the second, ms.
        wall: Ratio of median wall times.
        cpu: Ratio of median CPU times; the one to believe on a busy machine.
        extra_wall_ms: Median over the pairs of A's wall time minus B's.
        extra_cpu_ms: Likewise for CPU time.
    """

    a: Timing
    b: Timing
    wall: Ratio
    cpu: Ratio
    extra_wall_ms: Number
    extra_cpu_ms: Number

    def summary(self) -> str:
        """One line for a benchmark's output."""
        parts = [
            f"{name} {plain(r.value):.3f} [{plain(r.lower):.3f}, {plain(r.upper):.3f}]"
            for name, r in (("wall", self.wall), ("CPU", self.cpu))
        ]
        return (
            f"A/B {', '.join(parts)}; A {plain(self.a.wall.p50):.4g} ms, "
            f"B {plain(self.b.wall.p50):.4g} ms, n = {self.a.wall.n}"
        )


def compare(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    seconds: float = 5.0,
    min_pairs: int = 20,
    max_pairs: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Run both functions in turn, each pair in random order, and compare their medians.

    Args:
        a: What is judged.
        b: What it is judged against.
        seconds: Time for the runs that count; warm-up takes at most half as much again.
        min_pairs: Pairs taken in any case.
        max_pairs: Pairs at most.
        seed: Of the order and of the bootstrap.
    """
    for call in (a, b):
        warm_up(call, 50, seconds / 4)
    times_a, times_b = times = RunTimes([], []), RunTimes([], [])
    with gc_paused():
        end = time.perf_counter() + seconds
        for coin in np.random.default_rng(seed).integers(0, 2, max_pairs).tolist():
            for which in (coin, 1 - coin):
                times[which].add(*time_once((a, b)[which]))
            if time.perf_counter() > end and len(times_a.wall) >= min_pairs:
                break
    return Comparison(
        a=times_a.timing(),
        b=times_b.timing(),
        wall=_ratio(times_a.wall, times_b.wall, seed),
        cpu=_ratio(times_a.cpu, times_b.cpu, seed),
        extra_wall_ms=_median_difference(times_a.wall, times_b.wall),
        extra_cpu_ms=_median_difference(times_a.cpu, times_b.cpu),
    )


def _ratio(a: list[float], b: list[float], seed: int) -> Ratio:
    return Ratio(*(number(v) for v in ratio_of_medians(a, b, seed=seed)))


def _median_difference(a: list[float], b: list[float]) -> Number:
    return number(median([x - y for x, y in zip(a, b, strict=True)]))
