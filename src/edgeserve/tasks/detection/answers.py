"""Boxes as a user's reference answers them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.tasks.answers import (
    Fields,
    ReferenceAnswers,
    check_labels,
    check_numbers,
    class_label,
    field_parser,
    unreadable_record,
)
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.detection.compare import IOU, iou

__all__ = ["ANSWERS"]


_FORM = "boxes [n, 4] (xyxy, pixels of the upright photo), scores [n], labels [n]"
#: Pixels from the origin beyond which no corner of a box lies.
_MAX_COORDINATE = 1e7


def _detection(fields: Fields, labels: Sequence[str]) -> Detection:
    named = fields["labels"] if "labels" in fields else fields["classes"]
    return Detection(
        boxes=np.asarray(fields["boxes"]),
        scores=np.asarray(fields["scores"]),
        labels=tuple(class_label(each, labels) for each in np.asarray(named).tolist()),
    )


def _check(record: Detection, labels: Sequence[str], thing: str) -> None:
    check_numbers(Detection, _FORM, thing, (record.boxes, record.scores), (record.scores,))
    check_labels(record.labels, labels, thing)


def _check_corners(record: Detection, thing: str) -> None:
    """A server's own boxes: corners in their order, on a picture that could exist."""
    boxes = record.boxes
    turned = (boxes[:, 2:] < boxes[:, :2] - 1).any(axis=1)  # a pixel: rounding of a thin box
    if turned.any():
        raise unreadable_record(
            Detection,
            _FORM,
            thing,
            f"a box {_shown(boxes[turned.argmax()])}, its end before its start",
            "give x1, y1, x2, y2: of x, y, width, height add x to width and y to height",
        )
    far = (np.abs(boxes) > _MAX_COORDINATE).any(axis=1)
    if far.any():
        raise unreadable_record(
            Detection,
            _FORM,
            thing,
            f"a box {_shown(boxes[far.argmax()])}, beyond any picture",
            "give corners in pixels of the upright photo",
        )


def _shown(box: np.ndarray) -> str:
    return f"[{', '.join(f'{corner:g}' for corner in box.tolist())}]"


def _complete(rule: DecisionRule, record: Detection, near: Detection) -> Detection:
    """Add what the program nearly found: boxes below the threshold that are not the record's own.

    So no invention is excused as a close call: an artifact's box just above the threshold may be
    one that the reference has just below it, or one where the reference sees nothing.
    """
    found = iou(near.boxes, record.boxes) >= IOU
    alike = np.array([[a == b for b in record.labels] for a in near.labels], bool)
    own = (found & alike.reshape(found.shape)).any(axis=1)
    new = np.flatnonzero((near.scores < rule.threshold) & ~own)
    return Detection(
        boxes=np.concatenate([record.boxes, near.boxes[new]]),
        scores=np.concatenate([record.scores, near.scores[new]]),
        labels=(*record.labels, *(near.labels[i] for i in new)),
        floor=rule.threshold - rule.sure,
    )


ANSWERS = ReferenceAnswers(
    field_parser(Detection, _FORM, _detection, _check, _check_corners), complete=_complete
)
