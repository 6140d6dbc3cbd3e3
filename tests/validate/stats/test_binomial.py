"""The statistics against scipy, against known figures, and against simulated coverage."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from edgeserve.validate.stats import binomial

SHAPES = [0.3, 1, 1.5, 4, 33.25, 350, 20_000.5]


@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("b", SHAPES)
def test_incomplete_beta_is_scipys(a: float, b: float) -> None:
    mean = a / (a + b)
    points = [0, 1e-9, 0.01, mean / 2, mean, (1 + mean) / 2, 0.99, 1]
    ours = [binomial.incomplete_beta(a, b, x) for x in points]
    assert ours == pytest.approx([special.betainc(a, b, x) for x in points], rel=0, abs=1e-10)


@pytest.mark.parametrize("n", [1, 2, 7.5, 24, 149, 330, 412, 5000, 100_000])
@pytest.mark.parametrize("share", [0, 0.004, 0.02, 0.08, 0.3, 0.97, 1])
def test_bounds_are_clopper_pearsons(n: float, share: float) -> None:
    events = share * n
    upper = stats.beta.ppf(0.95, events + 1, n - events) if events < n else 1.0
    lower = stats.beta.ppf(0.05, events, n - events + 1) if events > 0 else 0.0
    assert binomial.upper_bound(events, n) == pytest.approx(upper, rel=0, abs=1e-10)
    assert binomial.lower_bound(events, n) == pytest.approx(lower, rel=0, abs=1e-10)


@pytest.mark.parametrize(
    ("groups", "harm"), [(20, 0.1391), (24, 0.1173), (36, 0.0798), (149, 0.0199), (330, 0.0090)]
)
def test_minimum_harm_is_the_rule_for_no_flips(groups: int, harm: float) -> None:
    assert binomial.minimum_detectable_rate(groups) == pytest.approx(
        1 - 0.05 ** (1 / groups), rel=1e-12
    )
    assert binomial.minimum_detectable_rate(groups) == pytest.approx(harm, abs=5e-5)


def test_09_percent_needs_about_330_inputs() -> None:
    needed = binomial.groups_needed(lambda n: binomial.minimum_detectable_rate(n) <= 0.009, 1)
    assert needed == math.ceil(math.log(0.05) / math.log(1 - 0.009)) == 332


@given(st.floats(0, 1), st.floats(0.5, 3000), st.floats(0.5, 3000))
@settings(max_examples=60, deadline=None)
def test_bounds_hold_the_rate_between_them_and_narrow(share: float, n: float, more: float) -> None:
    lower, upper = binomial.lower_bound(share * n, n), binomial.upper_bound(share * n, n)
    assert 0 <= lower <= share + 1e-12
    assert share - 1e-12 <= upper <= 1
    larger = n + more
    assert binomial.upper_bound(share * larger, larger) <= upper + 1e-12


def test_the_upper_bound_covers_in_95_percent() -> None:
    """Exact coverage at rates between the bounds' own steps, from the binomial distribution."""
    for true in (0.005, 0.02, 0.08, 0.3):
        uppers = np.array([binomial.upper_bound(k, 50) for k in range(51)])
        covered = stats.binom.pmf(np.arange(51), 50, true)[uppers >= true].sum()
        assert covered >= 0.95


def grouped(*groups: tuple[int, int]) -> list[tuple[str, bool]]:
    """Outcomes of groups given as (flips, inputs)."""
    rows = ([(f"g{i}", j < flips) for j in range(n)] for i, (flips, n) in enumerate(groups))
    return list(chain.from_iterable(rows))


def test_rate_counts_groups_not_inputs() -> None:
    found = binomial.rate(grouped(*[(0, 22)] * 20))
    assert (found.count, found.n, found.rate, found.n_eff, found.lower) == (0, 440, 0.0, 20, 0.0)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 20))


def test_a_whole_group_of_flips_is_one_event() -> None:
    found = binomial.rate(grouped((22, 22), *[(0, 22)] * 19))
    assert found.count == 22
    assert found.upper == pytest.approx(stats.beta.ppf(0.95, 2, 19), abs=1e-10)
    assert found.lower == pytest.approx(stats.beta.ppf(0.05, 1, 20), abs=1e-10)


def test_unequal_groups_widen_the_interval_both_ways() -> None:
    """One group of 381 unharmed inputs must not hide 19 small groups that all flip."""
    found = binomial.rate(grouped((0, 381), *[(1, 1)] * 19))
    assert found.rate == pytest.approx(19 / 400)
    assert found.upper == pytest.approx(stats.beta.ppf(0.95, 20, 1), abs=1e-10)
    by_input = 19 * 20 / 400
    assert found.lower == pytest.approx(stats.beta.ppf(0.05, by_input, 21 - by_input), abs=1e-10)


def test_nothing_observed_proves_nothing() -> None:
    found = binomial.rate([])
    assert (found.n, found.rate, found.lower, found.upper) == (0, "nan", 0.0, 1.0)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_first_settled_is_the_first(threshold: int, start: int) -> None:
    assert binomial.groups_needed(lambda n: n >= threshold, start) == max(threshold, start)


def test_first_settled_gives_up() -> None:
    assert binomial.groups_needed(lambda n: False, 3) is None
