"""The paired test of a difference, held to other implementations of the same figures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from edgeserve.validate.stats.paired_tests import (
    LabelOutcome,
    difference_bounds,
    label_stats,
    mcnemar_p,
)


def marked(both: int, lost: int, won: int, neither: int) -> list[LabelOutcome]:
    kinds = [(True, True)] * both + [(True, False)] * lost + [(False, True)] * won
    kinds += [(False, False)] * neither
    return [LabelOutcome(str(i), *kind) for i, kind in enumerate(kinds)]


def test_shares_are_counted() -> None:
    stats = label_stats(marked(80, 6, 2, 12))
    assert stats is not None
    assert (stats.inputs, stats.groups, stats.lost, stats.won) == (100, 100, 6, 2)
    assert (stats.reference, stats.artifact) == (0.86, 0.82)


@pytest.mark.parametrize(("lost", "won"), [(6, 2), (1, 0), (12, 12), (0, 7), (30, 5)])
def test_the_chance_is_that_of_the_exact_test(lost: int, won: int) -> None:
    known = scipy.stats.binomtest(lost, lost + won, 0.5, alternative="greater").pvalue
    assert mcnemar_p(lost, won) == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize(("true_lost", "true_won"), [(0.02, 0.02), (0.05, 0.01), (0.0, 0.0)])
def test_bounds_hold_as_often_as_they_say(true_lost: float, true_won: float) -> None:
    """Approximately: 93 % on the side where few differ, 95 % and more elsewhere."""
    rng = np.random.default_rng(5)
    truth = true_won - true_lost
    held = [0, 0]
    for _ in range(4000):
        lost, won, _ = rng.multinomial(300, [true_lost, true_won, 1 - true_lost - true_won])
        lower, upper = difference_bounds(int(lost), int(won), 300)
        held[0] += lower <= truth
        held[1] += truth <= upper
    assert min(held) >= 0.925 * 4000


def test_inputs_of_one_group_are_one() -> None:
    """Ten copies of each input say no more than one of each."""
    once = label_stats(marked(80, 6, 2, 12))
    copies = [
        LabelOutcome(each.group, each.reference, each.artifact)
        for each in marked(80, 6, 2, 12)
        for _ in range(10)
    ]
    many = label_stats(copies)
    assert once is not None
    assert many is not None
    assert many.inputs == 1000
    assert (many.lower, many.upper, many.p) == pytest.approx((once.lower, once.upper, once.p))


def test_without_labels_there_is_nothing_to_say() -> None:
    assert label_stats([]) is None
