"""Statistics of run times: robust, pure, and with no opinion on what is good.

Times are skewed and have outliers, so everything here rests on order statistics; a mean of run
times says mostly how often something else ran.

`compare` tells which of two functions is faster, and by how much. Runs of A and B alternate in
random order, so that whatever the machine does meanwhile hits both. The answer is a ratio of
medians: unlike two absolute times it survives another machine, and its interval says whether the
difference is more than luck::

    print(compare(lambda: wrapper.predict(feed), lambda: session.run(feed)).summary())
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from edgeserve.measure.timing import RunTimes, gc_paused, time_once, warm_up
from edgeserve.types.base import Number, Value, number, plain
from edgeserve.types.reports import Spread, Timing

#: Standard deviation of a normal sample over its median absolute deviation: 1 / Phi^-1(3/4).
_SIGMA_PER_MAD = 1.482602218505602
#: Standard error of a median over that of a mean, for a normal sample: sqrt(pi / 2).
_MEDIAN_PENALTY = 1.2533141373155003


def median(values: Sequence[float]) -> float:
    """Median; the mean of the two middle values of an even number.

    Raises:
        ValueError: ``values`` is empty.
    """
    if not len(values):
        raise ValueError("no values")
    return float(np.median(np.asarray(values, np.float64)))


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, not scaled to a standard deviation."""
    middle = median(values)
    return median([abs(v - middle) for v in values])


def spread(values: Sequence[float]) -> Spread:
    """Sum up run times: n, minimum, p50, p90, p99 and MAD, in the unit of ``values``.

    Percentiles are interpolated linearly between order statistics (Hyndman and Fan 1996, type 7):
    below about 100 values p99 lies just under the maximum.

    Raises:
        ValueError: ``values`` is empty.
    """
    middle = median(values)
    p90, p99 = np.percentile(np.asarray(values, np.float64), [90, 99])
    return Spread(
        n=len(values),
        min=number(min(values)),
        p50=number(middle),
        p90=number(p90),
        p99=number(p99),
        mad=number(mad(values)),
    )


def median_error(values: Sequence[float]) -> float:
    """Standard error of the median, estimated from the MAD as if the middle were normal."""
    return _MEDIAN_PENALTY * _SIGMA_PER_MAD * mad(values) / float(np.sqrt(len(values)))


def drift(values: Sequence[float]) -> tuple[float, float]:
    """How much slower the second half was than the first, and how many standard errors that is.

    ``(0.1, 5.0)``: 10 % slower, at five times what the scatter explains. ``(0.0, 0.0)`` for fewer
    than four values.
    """
    half = len(values) // 2
    if half < 2:
        return 0.0, 0.0
    first, second = values[:half], values[-half:]
    change = median(second) - median(first)
    error = float(np.hypot(median_error(first), median_error(second)))
    significance = abs(change) / error if error else (np.inf if change else 0.0)
    return change / median(first) if median(first) else 0.0, float(significance)


def ratio_of_medians(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[float, float, float]:
    """``median(a) / median(b)`` of pairs, with a bootstrap interval.

    Pairs are resampled together (``a[i]`` and ``b[i]`` ran next to each other and share the
    machine's mood), with a percentile interval: Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13.

    Returns:
        The ratio, its lower and its upper bound.

    Raises:
        ValueError: lengths differ or are 0.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"pairs needed, got {len(a)} and {len(b)} values")
    pairs = np.asarray([a, b], np.float64)
    rng = np.random.default_rng(seed)
    ratios = sorted(_resampled(pairs, rng) for _ in range(resamples))
    # Order statistics as they are: between two infinite ratios nothing can be interpolated.
    cut = int(resamples * (1 - level) / 2)
    low, high = ratios[cut], ratios[-1 - cut]
    return _divide(median(a), median(b)), low, high


def _resampled(pairs: np.ndarray, rng: np.random.Generator) -> float:
    n = pairs.shape[1]
    top, bottom = np.median(pairs[:, rng.integers(0, n, n)], axis=1)
    return _divide(float(top), float(bottom))


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        return float("inf") if a > 0.0 else float("nan")
    return a / b


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
