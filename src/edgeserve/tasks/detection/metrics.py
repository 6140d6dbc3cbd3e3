"""Mean average precision and overlap of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from edgeserve.tasks.average_precision import (
    ClassMatches,
    FoundRow,
    MatchedFigures,
    average_precisions,
    match_class,
)
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import Detection, TrueBox, TrueBoxes
from edgeserve.tasks.detection.compare import iou, match_boxes, visible_boxes
from edgeserve.tasks.metrics import TaskMetrics
from edgeserve.types.records import Record


def box_row(truth: TrueBoxes, reference: Record | None, answer: Record | None) -> FoundRow:
    """What both sides found in one picture; a side that is no detection found nothing.

    Args:
        truth: All things in it.
        reference: What the reference found; what it nearly found does not count.
        answer: What the artifact found.
    """
    wanted: dict[str, int] = {}
    for box in truth.boxes:
        if not box.crowd:
            wanted[box.label] = wanted.get(box.label, 0) + 1
    return FoundRow(wanted, (_class_matches(truth, reference), _class_matches(truth, answer)))


def _class_matches(truth: TrueBoxes, record: Record | None) -> dict[str, ClassMatches]:
    if not isinstance(record, Detection):
        return {}
    held: dict[str, list[int]] = {}
    for i in visible_boxes(record):
        held.setdefault(record.labels[i], []).append(i)
    matches = {}
    for label, indexes in held.items():
        boxes = [box for box in truth.boxes if box.label == label]
        crowd = np.array([box.crowd for box in boxes], bool)
        overlaps = _iou_with_crowds(record.boxes[indexes].astype(np.float64), boxes, crowd)
        matches[label] = match_class(overlaps, record.scores[indexes].astype(np.float64), crowd)
    return matches


def _iou_with_crowds(mine: np.ndarray, boxes: Sequence[TrueBox], crowd: np.ndarray) -> np.ndarray:
    """IoU [n, m]; of crowds the share of the box found that lies in them."""
    if not boxes:
        return np.zeros((len(mine), 0))
    corners = np.array([box.xyxy for box in boxes], np.float64)
    whole = iou(mine, corners)
    if crowd.any():
        low = np.maximum(mine[:, None, :2], corners[None, :, :2])
        high = np.minimum(mine[:, None, 2:], corners[None, :, 2:])
        shared = np.maximum(high - low, 0).prod(axis=2)
        area = np.maximum((mine[:, 2:] - mine[:, :2]).prod(axis=1), 1e-10)
        whole = np.where(crowd, shared / area[:, None], whole)
    return whole


def _against(rule: DecisionRule, reference: Detection, answer: Detection | None) -> FoundRow:
    """The reference's own boxes as the truth."""
    found = zip(reference.boxes.tolist(), reference.labels, reference.scores, strict=True)
    boxes = [TrueBox(tuple(box), label) for box, label, s in found if s >= rule.threshold]
    return box_row(TrueBoxes(tuple(boxes)), answer, None)


METRICS = TaskMetrics(
    figures=lambda rule: MatchedFigures("iou", partial(match_boxes, rule), partial(_against, rule)),
    titles={"map50": "mAP at IoU 0.5", "iou": "mean IoU of matched boxes"},
    row=lambda truth, place, reference, answer: box_row(truth, reference, answer),
    read=average_precisions,
)
