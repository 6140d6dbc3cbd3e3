"""The timed loops: warm-up until times are stable, runs under a time budget with the GC off.

The time from raw input to decision is split over the steps on the way.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeserve.measure.stats import median, spread
from edgeserve.types.reports import Timing

if TYPE_CHECKING:
    from edgeserve.processing import Processor


#: Warm-up compares the medians of two neighbouring windows of this many runs.
_WINDOW = 5
#: Warm-up ends when they agree within this share.
_STABLE = 0.05
#: `time_runs` gives up on the minimum number of runs after this many budgets.
_PATIENCE = 3.0

_MS_PER_NS = 1e-6


class RunTimes(NamedTuple):
    """Wall and CPU time of the same runs in milliseconds; CPU is summed over all threads."""

    wall: list[float]
    cpu: list[float]

    def add(self, wall: float, cpu: float) -> None:
        """Take in one run."""
        self.wall.append(wall)
        self.cpu.append(cpu)

    def timing(self) -> Timing:
        """Their summary."""
        return Timing(wall=spread(self.wall), cpu=spread(self.cpu))


def time_once(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one call.

    The CPU clock is read outside the wall clock: reading it is a system call, and would count.
    """
    cpu = time.process_time_ns()
    wall = time.perf_counter_ns()
    call()
    wall = time.perf_counter_ns() - wall
    cpu = time.process_time_ns() - cpu
    return wall * _MS_PER_NS, cpu * _MS_PER_NS


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Collect garbage now and not again until the block ends."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def is_stable(wall: list[float]) -> bool:
    """Whether the last two windows of runs took the same time."""
    if len(wall) < 2 * _WINDOW:
        return False
    before, now = median(wall[-2 * _WINDOW : -_WINDOW]), median(wall[-_WINDOW:])
    return abs(now - before) <= _STABLE * before


def warm_up(call: Callable[[], object], max_runs: int, seconds: float) -> tuple[int, bool]:
    """Run until times settle, or ``max_runs`` or ``seconds`` are spent.

    Returns:
        How many runs were thrown away, and whether they settled.
    """
    wall: list[float] = []
    with gc_paused():
        end = time.perf_counter() + seconds
        while len(wall) < max_runs and not is_stable(wall):
            wall.append(time_once(call)[0])
            if time.perf_counter() > end:
                break
    return len(wall), is_stable(wall)


def time_runs(call: Callable[[], object], min_runs: int, max_runs: int, seconds: float) -> RunTimes:
    """Time ``call`` again and again: at least ``min_runs``, at most ``max_runs``, for ``seconds``.

    A call so slow that ``min_runs`` would take three times ``seconds`` is stopped there, with at
    least one run: the number of runs stands in the result.
    """
    times = RunTimes([], [])
    with gc_paused():
        start = time.perf_counter()
        while len(times.wall) < max_runs:
            times.add(*time_once(call))
            spent = time.perf_counter() - start
            enough = spent >= seconds and len(times.wall) >= min_runs
            if enough or spent >= _PATIENCE * seconds:
                break
    return times


class Stopwatch:
    """Collects wall and CPU milliseconds per step; a step that returns within a run adds up."""

    def __init__(self) -> None:
        self.steps: dict[str, RunTimes] = {}
        self._row: dict[str, list[float]] = {}
        self._began = self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def begin(self) -> None:
        """Start a run."""
        self._row = {}
        self._began = self._last = self._now()

    def mark(self, step: str, seconds: float | None = None) -> None:
        """End a step: it took ``seconds`` of wall time, or all time since the mark before."""
        now = self._now()
        wall = now[0] - self._last[0] if seconds is None else seconds
        row = self._row.setdefault(step, [0.0, 0.0])
        row[0] += 1e3 * wall
        row[1] += 1e3 * (now[1] - self._last[1])
        self._last = now

    def end(self) -> float:
        """End a run; returns its wall time in seconds."""
        now = self._now()
        total = [1e3 * (now[0] - self._began[0]), 1e3 * (now[1] - self._began[1])]
        for step, times in {**self._row, "total": total}.items():
            self.steps.setdefault(step, RunTimes([], [])).add(*times)
        return now[0] - self._began[0]

    def timings(self) -> dict[str, Timing]:
        """Summary per step, in the order in which the steps first ran; "total" last."""
        return {step: times.timing() for step, times in self.steps.items()}


def time_steps(
    processor: Processor,
    raw: bytes | str,
    run: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
    *,
    batch: int,
    runs: int,
    seconds: float,
) -> dict[str, Timing]:
    """Time the whole way of ``batch`` equal samples, at most ``runs`` times or for ``seconds``.

    The first pass is thrown away. Times are of the whole batch.
    """

    def once(watch: Stopwatch) -> float:
        watch.begin()
        feed = processor.batch([processor.prepare(raw, watch.mark) for _ in range(batch)])
        watch.mark("batch")
        outputs = run(feed)
        watch.mark("run")
        processor.finish(outputs, feed)
        watch.mark("finish")
        return watch.end()

    watch, left = Stopwatch(), seconds
    once(Stopwatch())
    with gc_paused():
        for _ in range(runs):
            left -= once(watch)
            if left <= 0:
                break
    return watch.timings()
