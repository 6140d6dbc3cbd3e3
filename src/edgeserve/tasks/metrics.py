"""Figures of tasks: one metric, against the reference's answers and against ground truth.

A metric is read from rows, one an input, for both sides at once: the reference and the artifact.
Against the reference its own answer stands for the truth, and the artifact for the first side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from edgeserve.tasks.base import DecisionRule
from edgeserve.types.records import Record
from edgeserve.types.samples import Sample
from edgeserve.types.steps import PixelStep

#: How often each group counts, float64 [draws, groups], and the rows of each group, to metrics by
#: name, float64 [2, draws]: of the reference and of the artifact; NaN where there is none.
ReadRows = Callable[[Sequence[Sequence[Any]], np.ndarray], Mapping[str, np.ndarray]]


class MetricAccumulator(Protocol):
    """The task's own figures over all inputs, gathered one by one."""

    def add(self, reference: Any, answer: Any) -> None:
        """Take one input in; the answer may be None."""

    def value(self) -> dict[str, float]:
        """The figures so far; none before any input that has them."""


class TruthPlace(NamedTuple):
    """Where an input's ground truth lies, for answers that are places in it.

    Attributes:
        labels: The model's, which the truth counts in.
        steps: Resizing and cropping of the model's picture.
        size: Height and width of the upright photo; None: it was made of no picture.
    """

    labels: tuple[str, ...]
    steps: Sequence[PixelStep]
    size: tuple[int, int] | None


class TaskMetrics(NamedTuple):
    """The part ``metrics`` of a task's folder; what a task does not have is None.

    Attributes:
        figures: Gathers the figures against the reference's answers, for one rule.
        titles: What each of these figures is called.
        row: ``(truth, place, reference, answer)`` to what both sides count for on one input; None:
            nothing can be told of it. A side that is no record of the task found nothing.
        read: The metrics against ground truth, of all rows.
        words: The words of a true label that a text is held against.
        word_errors: ``(words, text)``: how many edits the text is away from them.
    """

    figures: Callable[[DecisionRule], MetricAccumulator] | None = None
    titles: Mapping[str, str] = {}
    row: Callable[[Any, TruthPlace, Record | None, Record | None], Any] | None = None
    read: ReadRows | None = None
    words: Callable[[Sample], list[str]] | None = None
    word_errors: Callable[[list[str], Record | None], float] | None = None


class RowFigures:
    """Figures read from rows, one an input.

    Args:
        row: ``(reference, answer)`` to the row in which the reference is the truth.
        read: The figures of all rows.
        names: Which of them are shown; NaN ones never are.
    """

    def __init__(
        self, row: Callable[[Any, Any], Any], read: ReadRows, names: Sequence[str]
    ) -> None:
        self._row, self._read, self._names = row, read, names
        self._rows: list[Any] = []

    def add(self, reference: Any, answer: Any) -> None:
        """See `MetricAccumulator.add`."""
        self._rows.append(self._row(reference, answer))

    def value(self) -> dict[str, float]:
        """See `MetricAccumulator.value`."""
        found = self._read([self._rows], np.ones((1, 1))) if self._rows else {}
        values = {name: float(found[name][0, 0]) for name in self._names if name in found}
        return {name: value for name, value in values.items() if np.isfinite(value)}


class RatioFigure:
    """A sum over a sum: errors over words, tokens that agree over all.

    Args:
        name: The figure's.
        parts: ``(reference, answer)`` to what one input adds to both sums.
    """

    def __init__(self, name: str, parts: Callable[[Any, Any], tuple[float, float]]) -> None:
        self._name, self._parts = name, parts
        self._sum, self._size = 0.0, 0.0

    def add(self, reference: Any, answer: Any) -> None:
        """See `MetricAccumulator.add`."""
        part, size = self._parts(reference, answer)
        self._sum, self._size = self._sum + part, self._size + size

    def value(self) -> dict[str, float]:
        """See `MetricAccumulator.value`."""
        return {self._name: self._sum / self._size} if self._size else {}


class F1Row(NamedTuple):
    """What was found in one input; of the reference, then of the artifact.

    Attributes:
        both: Things that are true and found.
        sum: True things and found ones, added up.
    """

    both: tuple[int, int]
    sum: tuple[int, int]


def f1(groups: Sequence[Sequence[F1Row]], weights: np.ndarray) -> dict[str, np.ndarray]:
    """``f1`` of both sides; see `ReadRows`."""
    both = np.array([np.sum([row.both for row in rows], axis=0) for rows in groups], np.float64)
    total = np.array([np.sum([row.sum for row in rows], axis=0) for rows in groups], np.float64)
    right, size = (weights @ both).T, (weights @ total).T
    return {"f1": np.where(size > 0, 2 * right / np.maximum(size, 1), np.nan)}
