"""The time from raw input to decision, split over the steps on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.measure.loop import Times, quiet
from edgeserve.measure.stats import spread
from edgeserve.types.reports import Timing

if TYPE_CHECKING:
    from edgeserve.processing import Processor

__all__ = ["Stopwatch", "split"]


class Stopwatch:
    """Collects wall and CPU milliseconds per step; a step that returns within a run adds up."""

    def __init__(self) -> None:
        self.steps: dict[str, Times] = {}
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
        for step, (wall, cpu) in {**self._row, "total": total}.items():
            times = self.steps.setdefault(step, Times([], []))
            times.wall.append(wall)
            times.cpu.append(cpu)
        return now[0] - self._began[0]

    def timings(self) -> dict[str, Timing]:
        """Summary per step, in the order in which the steps first ran; "total" last."""
        return {
            step: Timing(wall=spread(times.wall), cpu=spread(times.cpu))
            for step, times in self.steps.items()
        }


def split(
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
    watch = Stopwatch()
    _pass(Stopwatch(), processor, raw, run, batch)
    left = seconds
    with quiet():
        for _ in range(runs):
            left -= _pass(watch, processor, raw, run, batch)
            if left <= 0:
                break
    return watch.timings()


def _pass(
    watch: Stopwatch,
    processor: Processor,
    raw: bytes | str,
    run: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
    batch: int,
) -> float:
    watch.begin()
    feed = processor.batch([processor.prepare(raw, watch.mark) for _ in range(batch)])
    watch.mark("batch")
    outputs = run(feed)
    watch.mark("run")
    processor.finish(outputs, feed)
    watch.mark("finish")
    return watch.end()
