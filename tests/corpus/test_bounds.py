"""Bounds of Clopper and Pearson, against scipy's exact test and against the closed form."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from dev.corpus.oracle.bounds import lower, upper


@pytest.mark.parametrize(("events", "n"), [(1, 10), (7, 600), (160, 1200), (599, 600)])
def test_bounds_are_those_of_the_exact_test(events: int, n: int) -> None:
    two_sided = binomtest(events, n).proportion_ci(0.90, "exact")
    assert lower(events, n) == pytest.approx(two_sided.low, rel=1e-9)
    assert upper(events, n) == pytest.approx(two_sided.high, rel=1e-9)


def test_nothing_seen_and_everything_seen() -> None:
    assert lower(0, 300) == 0.0
    assert upper(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert upper(300, 300) == 1.0
    assert lower(300, 300) == pytest.approx(0.05 ** (1 / 300))
    assert (lower(0, 0), upper(0, 0)) == (0.0, 1.0)


def test_a_sum_of_shares_lies_between_its_neighbours() -> None:
    assert upper(3, 100) < upper(3.5, 100) < upper(4, 100)
    assert lower(3, 100) < lower(3.5, 100) < lower(4, 100)
