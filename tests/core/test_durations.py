"""Estimates of durations against their definitions, computed by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest

from edgeserve.durations import DurationEstimate, LatencyWindow, time_runs


def test_the_mean_and_the_deviation_are_exponentially_weighted() -> None:
    """RFC 6298: the deviation uses the mean before the new duration."""
    seconds = np.random.default_rng(1).gamma(2.0, 0.01, 50)
    estimate = DurationEstimate(mean=0.03, weight=0.1)
    mean, deviation = 0.03, 0.03 / 4
    for each in seconds:
        deviation = 0.9 * deviation + 0.1 * abs(each - mean)
        mean = 0.9 * mean + 0.1 * each
        estimate.add(float(each))
        assert estimate.mean == pytest.approx(mean)
        assert estimate.deviation == pytest.approx(deviation)
    assert estimate.upper(4) == pytest.approx(mean + 4 * deviation)


def test_without_an_assumption_the_first_duration_is_the_mean() -> None:
    estimate = DurationEstimate(weight=0.1)
    assert (estimate.mean, estimate.upper()) == (0.0, 0.0)
    estimate.add(0.5)
    assert (estimate.mean, estimate.deviation) == (0.5, 0.0)
    estimate.add(1.5)
    assert (estimate.mean, estimate.deviation) == (pytest.approx(0.6), pytest.approx(0.1))


def test_the_window_forgets() -> None:
    window = LatencyWindow()
    for _ in range(300):
        window.add(9.0)
    for _ in range(256):
        window.add(0.1)
    assert window.hedge_after() == pytest.approx(0.15)


def test_runs_are_timed_within_their_limits() -> None:
    assert len(time_runs(lambda: None, 10.0, 1, 7)) == 7
    assert len(time_runs(lambda: time.sleep(0.01), 0.0, 3)) == 3
    times = time_runs(lambda: time.sleep(0.02), 0.1, 1)
    assert 1 <= len(times) <= 5
    assert min(times) >= 0.019
