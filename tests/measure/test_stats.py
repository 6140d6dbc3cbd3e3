"""Statistics against scipy, the standard library and brute force."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.measure.stats import drift, mad, median, median_error, ratio_of_medians, spread
from edgeserve.types.base import plain

TIMES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60)


@given(TIMES)
def test_median_and_mad_equal_scipys(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-12)
    assert mad(values) == pytest.approx(
        float(scipy.stats.median_abs_deviation(values)), rel=1e-9, abs=1e-9
    )


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=60))
def test_percentiles_equal_the_standard_librarys(values: list[float]) -> None:
    # statistics.quantiles(inclusive) is Hyndman and Fan's type 7, written independently of numpy.
    found = spread(values)
    oracle = statistics.quantiles(values, n=100, method="inclusive")
    assert found.n == len(values)
    assert plain(found.min) == min(values)
    for figure, index in ((found.p50, 50), (found.p90, 90), (found.p99, 99)):
        assert plain(figure) == pytest.approx(oracle[index - 1], rel=1e-9)


@given(TIMES)
def test_a_spread_is_in_order_and_ignores_the_order_of_runs(values: list[float]) -> None:
    s = spread(values)
    assert plain(s.min) <= plain(s.p50) <= plain(s.p90) <= plain(s.p99) <= max(values)
    assert spread(values[::-1]) == s


@pytest.mark.parametrize("function", [median, mad, spread])
def test_nothing_measured_is_an_error(function: object) -> None:
    with pytest.raises(ValueError, match="no values"):
        function([])  # type: ignore[operator]


def test_the_error_of_a_median_is_what_resampling_finds() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(10.0, 2.0, (4000, 101))
    true = float(np.std(np.median(samples, axis=1)))
    estimated = float(np.median([median_error(list(row)) for row in samples[:400]]))
    assert estimated == pytest.approx(true, rel=0.1)


def test_drift_sees_a_slowdown_and_its_size() -> None:
    rng = np.random.default_rng(0)
    steady = list(rng.normal(10.0, 0.1, 100))
    slowing = steady[:50] + [1.2 * v for v in steady[50:]]
    change, sigmas = drift(slowing)
    assert change == pytest.approx(0.2, abs=0.02)
    assert sigmas > 10
    assert drift(steady)[1] < 3
    assert drift(slowing[::-1])[0] < 0


def test_drift_of_exact_and_of_few_values() -> None:
    assert drift([1.0, 2.0, 3.0]) == (0.0, 0.0)
    assert drift([1.0] * 8) == (0.0, 0.0)
    assert drift([1.0] * 4 + [2.0] * 4) == (1.0, math.inf)


def test_false_alarms_of_drift_are_rare() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(drift(list(rng.lognormal(2.0, 0.1, 60)))[1] > 3 for _ in range(1000))
    assert alarms < 20  # 3 sigma of a normal is 0.3 %; a MAD of 30 values is rough


@pytest.mark.parametrize("factor", [1.0, 0.5, 1.07])
def test_ratio_equals_scipys_paired_bootstrap(factor: float) -> None:
    rng = np.random.default_rng(5)
    mood = rng.lognormal(0.0, 0.3, 150)
    a = factor * 8.0 * mood * rng.lognormal(0.0, 0.05, 150)
    b = 8.0 * mood * rng.lognormal(0.0, 0.05, 150)
    value, low, high = ratio_of_medians(list(a), list(b), seed=1)
    oracle = scipy.stats.bootstrap(
        (a, b),
        lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = oracle.high - oracle.low
    assert value == pytest.approx(float(np.median(a) / np.median(b)), rel=1e-12)
    assert low == pytest.approx(oracle.low, abs=0.15 * width)
    assert high == pytest.approx(oracle.high, abs=0.15 * width)
    assert low <= factor <= high


def test_ratio_is_reproducible_and_pairs_are_needed() -> None:
    a, b = [1.0, 2.0, 3.0, 5.0], [2.0, 2.5, 3.5, 4.0]
    assert ratio_of_medians(a, b, seed=4) == ratio_of_medians(a, b, seed=4)
    with pytest.raises(ValueError, match="pairs"):
        ratio_of_medians(a, b[:3])
    with pytest.raises(ValueError, match="pairs"):
        ratio_of_medians([], [])


def test_a_time_too_short_to_see_gives_no_division_by_zero() -> None:
    value, _, high = ratio_of_medians([1.0] * 5, [0.0] * 5)
    assert value == math.inf
    assert high == math.inf
    assert math.isnan(ratio_of_medians([0.0] * 5, [0.0] * 5)[0])
