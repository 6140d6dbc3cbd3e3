"""Boxes against the reference's: mean average precision."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.detection.compare import match_boxes

__all__ = ["METRICS", "MeanAveragePrecision"]


_RECALLS = np.linspace(0, 1, 101)


class MeanAveragePrecision:
    """Mean average precision of the answers against the reference's own boxes, at IoU 0.5.

    Precision at 101 recalls, each the best at that recall or above, mean over them, then over the
    classes that the reference has found. Beside it the mean overlap of matched boxes.
    """

    def __init__(self, rule: DecisionRule) -> None:
        self._rule = rule
        self._wanted: Counter[str] = Counter()
        self._found: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        self._overlaps: list[float] = []

    def add(self, reference: Detection, answer: Detection | None) -> None:
        """Take one input in."""
        counted = reference.scores >= self._rule.threshold
        self._wanted.update(
            label for label, it in zip(reference.labels, counted, strict=True) if it
        )
        if answer is None:
            return
        matched = match_boxes(self._rule, reference, answer)
        right = set(matched.answer.tolist())
        self._overlaps += matched.overlap[matched.answer >= 0].tolist()
        for j, label in enumerate(answer.labels):
            self._found[label].append((float(answer.scores[j]), j in right))

    def value(self) -> dict[str, float]:
        """``map50`` and ``iou``, where they can be told."""
        told = {}
        if self._wanted:
            precisions = [self._average(label) for label in sorted(self._wanted)]
            told["map50"] = float(np.mean(precisions))
        if self._overlaps:
            told["iou"] = float(np.mean(self._overlaps))
        return told

    def _average(self, label: str) -> float:
        found = sorted(self._found.get(label, ()), key=lambda each: -each[0])
        hits = np.cumsum([right for _, right in found])
        if not found or not hits[-1]:
            return 0.0
        recall = hits / self._wanted[label]
        precision = hits / np.arange(1, len(hits) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]
        places = np.searchsorted(recall, _RECALLS, side="left")
        reached = np.append(best, 0.0)[places]  # beyond the last recall there is no precision
        return float(reached.mean())


METRICS = MeanAveragePrecision
