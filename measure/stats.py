"""Statistics of run times: robust, pure, and with no opinion on what is good.

Times are skewed and have outliers, so everything here rests on order statistics; a mean of run
times says mostly how often something else ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.types.base import number
from edgeserve.types.reports import Spread

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
