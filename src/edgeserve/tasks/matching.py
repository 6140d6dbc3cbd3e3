"""Things found in a picture, by score, matched to those of the reference by how well they overlap.

Boxes overlap by their intersection over union, poses by the likeness of their points: what counts
as found, lost and invented is the same. Overlaps are of 0 to 1.

Source:
    T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014, and its rules of
    evaluation: greedy matching by score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeserve.tasks.base import (
    BoxMark,
    DecisionCounts,
    DecisionRule,
    RecordComparison,
    TaskSchema,
    count_flips,
)

#: Things that overlap by this much are one.
OVERLAP = 0.5
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Matches:
    """Which things of an answer are which of the reference.

    Attributes:
        answer: For each of the reference's things at or above the threshold, the index of the
            answer's that is matched to it, -1 for none: int [n].
        scores: The reference's scores of those: float64 [n].
        overlap: How well they overlap: float64 [n], 0 where there is none.
        known: For each of the answer's things, whether one of the reference that may match,
            however low its score, overlaps it: bool [m].
    """

    answer: np.ndarray
    scores: np.ndarray
    overlap: np.ndarray
    known: np.ndarray


def match_found(
    rule: DecisionRule, overlaps: np.ndarray, reference: np.ndarray, answer: np.ndarray
) -> Matches:
    """Match greedily: the answer's in order of falling score, each to the best one left.

    They match from an overlap of a half on. Of equal scores and overlaps the lower index comes
    first.

    Args:
        rule: Says from which score a thing of the reference counts.
        overlaps: Of each of the reference's with each of the answer's, [n, m]; 0 for those that
            may not match.
        reference: Scores of the reference's [n].
        answer: Scores of the answer's [m].
    """
    overlaps = np.where(overlaps >= OVERLAP, overlaps, 0.0)
    counted = np.flatnonzero(reference >= rule.threshold)
    left = overlaps[counted]
    found, overlap = np.full(len(counted), -1), np.zeros(len(counted))
    order = np.argsort(-answer.astype(np.float64), kind="stable")
    for j in order if len(counted) else ():
        best = int(left[:, j].argmax())
        if left[best, j] > 0:
            found[best], overlap[best] = j, left[best, j]
            left[best] = 0.0
    scores = reference[counted].astype(np.float64)
    return Matches(found, scores, overlap, np.asarray(overlaps.any(axis=0)))


def _compare(
    rule: DecisionRule, matched: Matches, reference: Any, answer: Any, sure: float, figure: str
) -> DecisionCounts:
    """Each thing of the reference, and each that the answer alone has.

    An invented thing is a clear one where the answer is sure of it, or the reference is sure that
    nothing is there: it lists what scores a little less, and this is not among it.
    """
    floor = reference.floor
    lost = matched.answer < 0
    clear = matched.scores >= rule.threshold + sure
    invented = ~matched.known & (answer.scores >= rule.threshold)
    lists_near = floor is not None and floor <= rule.threshold - sure + _ROUNDING
    least = rule.threshold if lists_near else rule.threshold + sure
    clear_extra = int((invented & (answer.scores >= least)).sum())
    figures = {figure: float(matched.overlap[~lost].mean())} if (~lost).any() else {}
    return count_flips(lost, clear, figures, extra=int(invented.sum()), clear_extra=clear_extra)


def _largest_move(matched: Matches, answer: np.ndarray, sure: float) -> float:
    """Largest difference of a score between things that are matched, or of their overlap from 1.

    Overlap counts by what flips: losing half of it is as much as losing the margin of a clear one.
    """
    pairs = matched.answer >= 0
    if not pairs.any():
        return 0.0
    scores = np.abs(matched.scores[pairs] - answer[matched.answer[pairs]])
    moved = (1 - matched.overlap[pairs]) / (1 - OVERLAP) * sure
    return float(max(scores.max(), moved.max()))


def visible_things(scores: np.ndarray, floor: float | None, sure: float) -> list[int]:
    """Indexes of what was found; not of what nearly was, which lies a margin above the floor."""
    least = 0.0 if floor is None else floor + sure
    return [i for i, score in enumerate(scores.tolist()) if score >= least - _ROUNDING]


def found_comparison(
    schema: TaskSchema,
    match: Callable[[DecisionRule, Any, Any], Matches],
    label: Callable[[Any, int], str],
    describe: Callable[[Any], str],
    details: Callable[[Any], list[str]],
    class_of: Callable[[Any], object] = lambda record: None,
) -> RecordComparison:
    """How records with ``boxes``, ``scores`` and ``floor`` are compared.

    Args:
        schema: The task's.
        match: ``(rule, reference, answer)``; see `match_found`.
        label: ``(record, index)``: what a box that is drawn is labelled with.
        describe: See `RecordComparison`.
        details: See `RecordComparison`.
        class_of: See `RecordComparison`.
    """

    def compare(rule: DecisionRule, reference: Any, answer: Any, sure: float) -> DecisionCounts:
        return _compare(
            rule, match(rule, reference, answer), reference, answer, sure, schema.overlap
        )

    def margin(rule: DecisionRule, record: Any) -> float:
        return max(0.0, float(record.scores.max(initial=0.0)) - rule.threshold)

    def gap(rule: DecisionRule, reference: Any, answer: Any) -> float:
        return _largest_move(match(rule, reference, answer), answer.scores, schema.sure)

    def marks(record: Any) -> list[BoxMark]:
        indexes = visible_things(record.scores, record.floor, schema.sure)
        boxes, scores = record.boxes.tolist(), record.scores.tolist()
        return [(tuple(boxes[i]), label(record, i), scores[i]) for i in indexes]

    def least_score(record: Any) -> float | None:
        return float(record.scores.min()) if len(record.scores) else None

    return RecordComparison(compare, margin, gap, describe, details, marks, class_of, least_score)
