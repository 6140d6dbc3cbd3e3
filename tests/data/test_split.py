"""The split: no group on both sides, dealt out one to one, the same every time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.data import split
from edgeserve.errors import DataError
from edgeserve.types.samples import Sample


def samples(groups: list[str]) -> tuple[Sample, ...]:
    return tuple(Sample(id=f"{i}", group=g, text="x") for i, g in enumerate(groups))


GROUPS = st.lists(st.text(max_size=3), min_size=2).filter(lambda g: len(set(g)) > 1)


@given(GROUPS, st.integers())
def test_halves(groups: list[str], seed: int) -> None:
    given_samples = samples(groups)
    halves = split(given_samples, seed)
    calibration = {s.group for s in halves["calibration"]}
    evaluation = {s.group for s in halves["evaluation"]}
    assert not calibration & evaluation
    assert len(evaluation) - len(calibration) in (0, 1)
    both = [*halves["calibration"], *halves["evaluation"]]
    assert sorted(both, key=lambda s: int(s.id)) == list(given_samples)
    assert [int(s.id) for s in halves["evaluation"]] == sorted(
        int(s.id) for s in halves["evaluation"]
    )


@given(GROUPS, st.integers(), st.randoms())
def test_neither_order_nor_size_decides(groups: list[str], seed: int, rng: random.Random) -> None:
    shuffled = [*groups, *rng.sample(groups, 1)]
    rng.shuffle(shuffled)
    assert {s.group for s in split(samples(groups), seed)["evaluation"]} == {
        s.group for s in split(samples(shuffled), seed)["evaluation"]
    }


def test_seeds_differ() -> None:
    many = samples([str(i) for i in range(40)])
    assert len({split(many, seed)["evaluation"] for seed in range(5)}) == 5


def test_known_halves() -> None:
    """Fixed for ever: another split would calibrate on what older reports were judged on.

    ``for g in a b c d; do printf 0:$g | sha256sum; done`` begins with 9d, e0, be and 7d: the
    order is d, a, c, b.
    """
    halves = split(samples(["a", "b", "c", "d"]))
    assert [s.group for s in halves["evaluation"]] == ["c", "d"]


@pytest.mark.parametrize("groups", [[], ["a"], ["a", "a"]])
def test_fewer_than_two_groups(groups: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        split(samples(groups))
    assert caught.value.code == "EDGE-DATA-019"
    assert f"{len(groups)} inputs" in str(caught.value)
