"""Boxes compared: matched by class and overlap (IoU)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import SCHEMA, Detection
from edgeserve.tasks.matching import Matches, found_comparison, match_found, visible_things


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


def match_boxes(rule: DecisionRule, reference: Detection, answer: Detection) -> Matches:
    """Match boxes of one label by their overlap (IoU); see `match_found`."""
    classes = {label: i for i, label in enumerate(dict.fromkeys(reference.labels))}
    wanted = np.array([classes[label] for label in reference.labels], int)
    got = np.array([classes.get(label, -1) for label in answer.labels], int)
    overlaps = iou(reference.boxes, answer.boxes)
    overlaps = np.where(wanted[:, None] == got[None], overlaps, 0.0)
    return match_found(rule, overlaps, reference.scores, answer.scores)


def visible_boxes(record: Detection) -> list[int]:
    """Indexes of the boxes that were found; not of those that nearly were (`Detection.floor`)."""
    return visible_things(record.scores, record.floor, SCHEMA.sure)


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


COMPARISON = found_comparison(
    SCHEMA,
    match_boxes,
    label=lambda record, i: record.labels[i],
    describe=_describe,
    details=_details,
    class_of=lambda record: record.labels[int(record.scores.argmax())] if record.labels else None,
)
