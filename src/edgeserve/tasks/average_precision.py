"""Average precision of things found, over recalls and overlaps.

Source:
    T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014, and its rules of
    evaluation: greedy matching by score at overlaps from 0.5 to 0.95, a hundred things a class
    and picture, crowds that count for nothing, average precision over 101 recalls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgeserve.tasks.matching import Matches
from edgeserve.tasks.metrics import RowFigures

#: Overlaps from which a thing counts as found; ``map50`` is of the first alone.
OVERLAPS = np.linspace(0.5, 0.95, 10)


_ROUNDING = 1e-10


#: Numbers that are worked on at a time.
_NUMBERS = 1 << 21


class ClassMatches(NamedTuple):
    """One side's things of one class in one picture, the surest first.

    Attributes:
        scores: float64 [n].
        hits: Whether each is a true one, at each of `OVERLAPS`: bool [10, n].
        counts: Whether each counts: it lies in no crowd: bool [10, n].
    """

    scores: np.ndarray
    hits: np.ndarray
    counts: np.ndarray


class FoundRow(NamedTuple):
    """One picture.

    Attributes:
        wanted: How many true things of each class there are, crowds apart.
        found: Of the reference and of the artifact: what was found of each class.
    """

    wanted: Mapping[str, int]
    found: tuple[Mapping[str, ClassMatches], Mapping[str, ClassMatches]]


def match_class(
    overlaps: np.ndarray, scores: np.ndarray, crowd: np.ndarray, most: int = 100
) -> ClassMatches:
    """Match things of one class: each in turn takes the true one it overlaps most of those left.

    Args:
        overlaps: Of each thing found with each true one, float64 [n, m].
        scores: Of each thing found, float64 [n].
        crowd: Which of the true ones stand for many: what lies in them counts for nothing; [m].
        most: So many of the things found count, the surest.
    """
    order = np.argsort(-scores, kind="stable")[:most]
    overlaps = overlaps[order]
    least = np.minimum(OVERLAPS, 1 - _ROUNDING)[:, None, None]
    left = np.where(overlaps >= least, overlaps, 0.0)  # [10, n, m]
    things, in_crowd = left[:, :, ~crowd], left[:, :, crowd].any(axis=2)
    hits = np.zeros(in_crowd.shape, bool)
    last = things.shape[2] - 1
    for j in range(len(order) if last >= 0 else 0):
        best = last - things[:, j, ::-1].argmax(axis=1)  # the last of several that overlap alike
        hits[:, j] = things[:, j].any(axis=1)
        taken = np.flatnonzero(hits[:, j])
        things[taken, :, best[taken]] = 0.0
    return ClassMatches(scores[order], hits, hits | ~in_crowd)


def average_precisions(
    groups: Sequence[Sequence[FoundRow]], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """``map50`` and ``map`` (0.5 to 0.95) of both sides; see `edgeserve.tasks.metrics.ReadRows`."""
    labels = sorted({label for rows in groups for row in rows for label in row.wanted})
    sums = np.zeros((2, 2, len(weights)))
    classes = np.zeros(len(weights))
    for label in labels:
        wanted = [sum(row.wanted.get(label, 0) for row in rows) for rows in groups]
        total = weights @ np.array(wanted, np.float64)
        classes += total > 0
        for side in (0, 1):
            precisions = _class_precision(groups, weights, total, label, side)
            sums[0, side] += precisions[0]
            sums[1, side] += precisions.mean(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(classes > 0, sums / np.maximum(classes, 1), np.nan)
    return {"map50": mean[0], "map": mean[1]}


def _class_precision(
    groups: Sequence[Sequence[FoundRow]],
    weights: np.ndarray,
    total: np.ndarray,
    label: str,
    side: int,
) -> np.ndarray:
    """Average precision of one class at each overlap: float64 [10, draws]; 0 without true ones."""
    held = [
        (g, row.found[side][label])
        for g, rows in enumerate(groups)
        for row in rows
        if label in row.found[side]
    ]
    precisions = np.zeros((len(OVERLAPS), len(weights)))
    if not held:
        return precisions
    scores = np.concatenate([found.scores for _, found in held])
    order = np.argsort(-scores, kind="stable")
    group = np.repeat([g for g, _ in held], [len(found.scores) for _, found in held])[order]
    hits = np.concatenate([found.hits for _, found in held], axis=1)[:, order]
    counts = np.concatenate([found.counts for _, found in held], axis=1)[:, order]
    step = max(1, _NUMBERS // hits.size)
    for start in range(0, len(weights), step):
        some = slice(start, start + step)
        precisions[:, some] = _interpolated_precision(
            weights[some][:, group], hits, counts, total[some]
        )
    return precisions


def _interpolated_precision(
    drawn: np.ndarray, hits: np.ndarray, counts: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """Mean over 101 recalls of the best precision at that recall or above: float64 [10, draws].

    Recalls are counted: what is a whole number is divided exactly, so none is missed by rounding.
    """
    right = (drawn * hits[:, None]).cumsum(axis=2)  # [10, draws, n]
    seen = (drawn * counts[:, None]).cumsum(axis=2)
    precision = right / np.maximum(seen, 1)
    best = np.maximum.accumulate(precision[..., ::-1], axis=2)[..., ::-1]
    reached = np.floor(100 * right / np.maximum(total, 1)[:, None]) + 1  # 0, 0.01, ... so far
    new = np.diff(reached, axis=2, prepend=0)
    return np.asarray(np.where(total > 0, (best * new).sum(axis=2) / 101, 0.0))


class MatchedFigures(RowFigures):
    """``map50`` with the reference's own things as the truth, and mean overlap of matched ones.

    Args:
        name: What the mean overlap is called.
        match: ``(reference, answer)``; see `edgeserve.tasks.matching.match_found`.
        row: See `RowFigures`.
    """

    def __init__(
        self, name: str, match: Callable[[Any, Any], Matches], row: Callable[[Any, Any], FoundRow]
    ) -> None:
        super().__init__(row, average_precisions, ("map50",))
        self._name, self._match = name, match
        self._overlaps: list[float] = []

    def add(self, reference: Any, answer: Any) -> None:
        """See `MetricAccumulator.add`."""
        super().add(reference, answer)
        if answer is not None:
            matched = self._match(reference, answer)
            self._overlaps += matched.overlap[matched.answer >= 0].tolist()

    def value(self) -> dict[str, float]:
        """See `MetricAccumulator.value`."""
        overlap = {self._name: float(np.mean(self._overlaps))} if self._overlaps else {}
        return super().value() | overlap
