"""The timed loops: how many runs, in what state, and that both clocks tell what they should."""

from __future__ import annotations

import gc
import itertools
import time

import pytest

from edgeserve.measure.timing import gc_paused, is_stable, time_once, time_runs, warm_up


class Counter:
    """A call that counts itself and notes whether the collector was on."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls = 0
        self.seconds = seconds
        self.collector: set[bool] = set()

    def __call__(self) -> None:
        self.calls += 1
        self.collector.add(gc.isenabled())
        time.sleep(self.seconds)


def test_sleep_is_wall_time_and_not_cpu_time() -> None:
    wall, cpu = time_once(lambda: time.sleep(0.05))
    assert wall >= 50.0
    assert cpu < wall


def test_work_is_cpu_time() -> None:
    _, cpu = time_once(lambda: sum(range(300_000)))
    assert cpu > 0.0


def test_the_collector_rests_and_comes_back() -> None:
    call = Counter()
    time_runs(call, 3, 10, 10.0)
    assert call.collector == {False}
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        time_runs(lambda: 1 / 0, 3, 10, 1.0)
    assert gc.isenabled()


def test_no_more_than_the_most_runs() -> None:
    call = Counter()
    times = time_runs(call, 3, 10, 60.0)
    assert call.calls == len(times.wall) == len(times.cpu) == 10


def test_the_least_runs_are_taken_though_the_budget_is_spent() -> None:
    times = time_runs(Counter(0.01), 8, 100, 0.03)
    assert len(times.wall) >= 3  # 3 budgets would allow 8; a slow machine stops earlier


def test_a_very_slow_call_is_not_repeated_for_ever() -> None:
    call = Counter(0.05)
    times = time_runs(call, 1000, 1000, 0.01)
    assert len(times.wall) == call.calls == 1


@pytest.mark.parametrize(
    ("wall", "is_settled"),
    [
        ([1.0] * 9, False),
        ([1.0] * 10, True),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0], False),
        ([9.0] * 5 + [1.0] * 5, False),
        ([9.0] * 5 + [1.0] * 10, True),
        ([1.0] * 5 + [1.04] * 5, True),
        ([1.0] * 5 + [1.06] * 5, False),
    ],
)
def test_settled_compares_the_last_two_windows(wall: list[float], is_settled: bool) -> None:
    assert is_stable(wall) is is_settled


def test_warm_up_ends_at_its_limits() -> None:
    pace = itertools.count()
    runs, _ = warm_up(lambda: next(pace), 0, 10.0)
    assert runs == 0
    slow = Counter(0.02)
    runs, warm = warm_up(slow, 50, 0.001)
    assert (runs, warm) == (1, False)
    growing = (0.2e-3 * 2**k for k in itertools.count())
    runs, warm = warm_up(lambda: time.sleep(next(growing)), 12, 60.0)
    assert (runs, warm) == (12, False)
