"""Estimates of how long something takes, from how long it took: moving mean, quantile, median.

Durations are seconds. None of the estimates is thread-safe; whoever shares one holds a lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class DurationEstimate:
    """Exponentially weighted mean and mean absolute deviation, as in RFC 6298, section 2.

    Args:
        mean: Assumed before the first duration; None: the first duration sets it.
        deviation: Likewise; None: a quarter of the mean.
        weight: Of the newest duration.

    Attributes:
        mean: 0 before the first duration where none is assumed.
        deviation: Likewise.
    """

    def __init__(
        self, mean: float | None = None, deviation: float | None = None, weight: float = 0.05
    ) -> None:
        self._empty, self._weight = mean is None, weight
        self.mean = mean or 0.0
        self.deviation = self.mean / 4 if deviation is None else deviation

    def add(self, seconds: float) -> None:
        """Include one duration."""
        if self._empty:
            self._empty, self.mean = False, seconds
        error = seconds - self.mean
        self.mean += self._weight * error
        self.deviation += self._weight * (abs(error) - self.deviation)

    def upper(self, deviations: float = 3.0) -> float:
        """An upper estimate, which few durations exceed."""
        return self.mean + deviations * self.deviation


class LatencyWindow:
    """Quantile of the last 256 durations."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=256)
        self._p90: float | None = None

    def add(self, seconds: float) -> None:
        """Include one duration, or the time after which it was given up."""
        self._seconds.append(seconds)
        if len(self._seconds) % 16 == 0:  # a full window: each time
            self._p90 = None

    def hedge_after(self) -> float | None:
        """When to hedge: 1.5 times the 90th percentile; None: too few durations are known.

        The 95th percentile itself is unstable where one in twenty is slow: it is fast in one
        window and slow in the next.
        """
        if len(self._seconds) < 20:
            return None
        if self._p90 is None:
            self._p90 = sorted(self._seconds)[int(0.9 * len(self._seconds))]
        return 1.5 * self._p90


class Throughput(NamedTuple):
    """Runs a second over all threads, and the usual (median) duration of one run."""

    rate: float
    seconds: float


def time_runs(
    run: Callable[[], object], seconds: float, at_least: int, at_most: int | None = None
) -> list[float]:
    """Durations of repeated runs, until the time or the largest number is reached.

    Args:
        run: What to time.
        seconds: Time limit; the runs end after it.
        at_least: Runs that are made whatever they take.
        at_most: Runs after which no more are made; None: no such limit.
    """
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) != at_most and (len(times) < at_least or time.perf_counter() < end):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times
