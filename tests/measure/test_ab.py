"""The A/B comparison: interleaved, fair, and right where the answer is known."""

from __future__ import annotations

import time

import pytest

from edgeserve.measure.ab import Comparison, compare
from edgeserve.types.base import decode, encode, plain


def test_both_run_equally_often_and_in_changing_order() -> None:
    order: list[str] = []
    found = compare(
        lambda: order.append("a"), lambda: order.append("b"), seconds=60.0, max_pairs=200
    )
    assert found.a.wall.n == found.b.wall.n == 200
    counted = order[-400:]
    pairs = [tuple(counted[i : i + 2]) for i in range(0, 400, 2)]
    assert set(pairs) == {("a", "b"), ("b", "a")}
    assert 60 < pairs.count(("a", "b")) < 140


def test_the_order_follows_from_the_seed() -> None:
    def run(seed: int) -> list[str]:
        order: list[str] = []
        compare(
            lambda: order.append("a"),
            lambda: order.append("b"),
            seconds=60.0,
            max_pairs=50,
            seed=seed,
        )
        return order[-100:]

    assert run(1) == run(1) != run(2)


def test_a_long_sleep_takes_longer_than_a_short_one() -> None:
    found = compare(lambda: time.sleep(0.06), lambda: time.sleep(0.001), seconds=0.1, min_pairs=8)
    assert plain(found.wall.lower) > 1.0
    assert plain(found.wall.lower) <= plain(found.wall.value) <= plain(found.wall.upper)
    assert plain(found.extra_wall_ms) > 0.0


def test_a_comparison_is_a_value_with_a_line_for_people() -> None:
    found = compare(lambda: sum(range(2000)), lambda: sum(range(1000)), max_pairs=30)
    assert decode(encode(found), Comparison) == found
    line = found.summary()
    assert line.startswith("A/B wall ")
    assert "CPU" in line
    assert "n = 30" in line


def test_a_failing_call_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        compare(lambda: 1 / 0, lambda: None)
