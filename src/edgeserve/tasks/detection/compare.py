"""Boxes compared: matched by class and overlap (IoU)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from edgeserve.tasks.base import BoxMark, DecisionCounts, DecisionRule, RecordComparison
from edgeserve.tasks.detection import SCHEMA, Detection

__all__ = ["COMPARISON", "IOU", "BoxMatches", "iou", "match_boxes", "visible_boxes"]


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of each box with each other, in float64.

    Args:
        first: xyxy [n, 4].
        second: xyxy [m, 4], in the same unit.

    Returns:
        float64 [n, m], 0 to 1; 0 where neither has an area.
    """
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    union = _area(one)[:, None] + _area(other)[None] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _area(boxes: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1))


#: Boxes that overlap by this much are of one thing.
IOU = 0.5


_ROUNDING = 1e-9


@dataclass(frozen=True)
class BoxMatches:
    """Which boxes of an answer are which of the reference.

    Attributes:
        answer: For each of the reference's boxes at or above the threshold, the index of the
            answer's that is matched to it, -1 for none: int [n].
        scores: The reference's scores of those: float64 [n].
        overlap: Their overlap (IoU): float64 [n], 0 where there is none.
        known: For each of the answer's boxes, whether a box of the reference of its class, however
            low its score, overlaps it: bool [m].
    """

    answer: np.ndarray
    scores: np.ndarray
    overlap: np.ndarray
    known: np.ndarray


def match_boxes(rule: DecisionRule, reference: Detection, answer: Detection) -> BoxMatches:
    """Match boxes greedily: the answer's in order of falling score, each to the best box left.

    Boxes match where they overlap by at least 0.5 (IoU) and have the same label. Of equal scores
    and overlaps the lower index comes first.
    """
    overlaps = _class_overlaps(reference, answer)
    counted = np.flatnonzero(reference.scores >= rule.threshold)
    left = overlaps[counted]
    found, overlap = np.full(len(counted), -1), np.zeros(len(counted))
    order = np.argsort(-answer.scores.astype(np.float64), kind="stable")
    for j in order if len(counted) else ():
        best = int(left[:, j].argmax())
        if left[best, j] > 0:
            found[best], overlap[best] = j, left[best, j]
            left[best] = 0.0
    scores = reference.scores[counted].astype(np.float64)
    return BoxMatches(found, scores, overlap, np.asarray(overlaps.any(axis=0)))


def _class_overlaps(reference: Detection, answer: Detection) -> np.ndarray:
    """Overlaps [n, m] of boxes that may match; 0 for all others."""
    classes = {label: i for i, label in enumerate(dict.fromkeys(reference.labels))}
    wanted = np.array([classes[label] for label in reference.labels], int)
    got = np.array([classes.get(label, -1) for label in answer.labels], int)
    overlaps = iou(reference.boxes, answer.boxes)
    matching = (wanted[:, None] == got[None]) & (overlaps >= IOU)
    return np.asarray(np.where(matching, overlaps, 0.0))


def _compare(
    rule: DecisionRule, reference: Detection, answer: Detection, sure: float
) -> DecisionCounts:
    """Each box of the reference, and each that the answer alone has.

    An invented box is a clear one where the answer is sure of it, or the reference is sure that
    nothing is there: it lists what scores a little less, and this is not among it.
    """
    matched = match_boxes(rule, reference, answer)
    lost = matched.answer < 0
    clear = matched.scores >= rule.threshold + sure
    invented = ~matched.known & (answer.scores >= rule.threshold)
    extra = int(invented.sum())
    told = reference.floor is not None and reference.floor <= rule.threshold - sure + _ROUNDING
    least = rule.threshold if told else rule.threshold + sure
    clear_extra = int((invented & (answer.scores >= least)).sum())
    figures = {"iou": float(matched.overlap[~lost].mean())} if (~lost).any() else {}
    return DecisionCounts(
        n=len(lost) + extra,
        flips=int(lost.sum()) + extra,
        decided=int(clear.sum()) + clear_extra,
        decided_flips=int((clear & lost).sum()) + clear_extra,
        figures=figures,
    )


def _margin(rule: DecisionRule, record: Detection) -> float:
    return max(0.0, float(record.scores.max()) - rule.threshold) if len(record.scores) else 0.0


def _gap(rule: DecisionRule, reference: Detection, answer: Detection) -> float:
    """Largest difference of a score between boxes that are matched, or of their overlap from 1.

    Overlap counts by what flips: losing half of it is as much as losing the margin of a clear box.
    """
    matched = match_boxes(rule, reference, answer)
    pairs = matched.answer >= 0
    if not pairs.any():
        return 0.0
    scores = np.abs(matched.scores[pairs] - answer.scores[matched.answer[pairs]])
    moved = (1 - matched.overlap[pairs]) / (1 - IOU) * SCHEMA.sure
    return float(max(scores.max(), moved.max()))


def visible_boxes(record: Detection) -> list[int]:
    """Indexes of the boxes that were found; not of those that nearly were (`Detection.floor`)."""
    least = 0.0 if record.floor is None else record.floor + SCHEMA.sure
    return [i for i, score in enumerate(record.scores.tolist()) if score >= least - _ROUNDING]


def _describe(record: Detection) -> str:
    found = visible_boxes(record)
    if not found:
        return "no box"
    best = max(found, key=lambda i: float(record.scores[i]))
    counts = Counter(record.labels[i] for i in found).most_common(4)
    named = ", ".join(f"{count} {label}" for label, count in counts)
    more = ", ..." if len({record.labels[i] for i in found}) > len(counts) else ""
    return f"{named}{more} (surest: {record.labels[best]} {record.scores[best]:.2f})"


def _details(record: Detection) -> list[str]:
    """The boxes, with their corners."""
    found = zip(record.scores, record.labels, record.boxes, strict=True)
    return [
        f"{score:.3f}  {label}  {' '.join(f'{corner:.0f}' for corner in box)}"
        for score, label, box in found
    ]


def _marks(record: Detection) -> list[BoxMark]:
    found = []
    for i in visible_boxes(record):
        x0, y0, x1, y1 = (float(edge) for edge in record.boxes[i])
        found.append(((x0, y0, x1, y1), record.labels[i], float(record.scores[i])))
    return found


COMPARISON = RecordComparison(
    compare=_compare,
    margin=_margin,
    gap=_gap,
    describe=_describe,
    details=_details,
    marks=_marks,
    class_of=lambda record: record.labels[int(record.scores.argmax())] if record.labels else None,
    least_score=lambda record: float(record.scores.min()) if len(record.scores) else None,
)
