"""Boxes as a user's reference answers them, and true boxes in the user's data; COCO's figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from edgeserve.data.ground_truth import (
    CocoImage,
    LineInput,
    TruthReader,
    bad_box,
    check_within,
    is_crowd,
    read_raw,
    unknown_classes,
)
from edgeserve.tasks.answers import (
    Fields,
    check_labels,
    class_label,
    field_answers,
    unreadable_record,
)
from edgeserve.tasks.average_precision import (
    ClassMatches,
    FoundRow,
    MatchedFigures,
    average_precisions,
    match_class,
)
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import Detection, TrueBox, TrueBoxes
from edgeserve.tasks.detection.device import iou, match_boxes, visible_boxes
from edgeserve.tasks.matching import OVERLAP
from edgeserve.tasks.metrics import TaskMetrics
from edgeserve.types.records import Record
from edgeserve.types.steps import Size


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


def _check_corners(record: Detection, thing: str) -> None:
    """A server's own boxes: corners in their order, on a picture that could exist."""
    boxes = record.boxes
    turned = (boxes[:, 2:] < boxes[:, :2] - 1).any(axis=1)  # a pixel: rounding of a thin box
    order = "give x1, y1, x2, y2: of x, y, width, height add x to width and y to height"
    far = (np.abs(boxes) > _MAX_COORDINATE).any(axis=1)
    unit = "give corners in pixels of the upright photo"
    for wrong, why, hint in (
        (turned, "its end before its start", order),
        (far, "beyond any picture", unit),
    ):
        if wrong.any():
            got = f"a box {_shown(boxes[wrong.argmax()])}, {why}"
            raise unreadable_record(Detection, _FORM, thing, got, hint)


def _shown(box: np.ndarray) -> str:
    return f"[{', '.join(f'{corner:g}' for corner in box.tolist())}]"


def _complete(rule: DecisionRule, record: Detection, near: Detection) -> Detection:
    """Add what the program nearly found: boxes below the threshold that are not the record's own.

    So no invention is excused as a close call: an artifact's box just above the threshold may be
    one that the reference has just below it, or one where the reference sees nothing.
    """
    found = iou(near.boxes, record.boxes) >= OVERLAP
    alike = np.array([[a == b for b in record.labels] for a in near.labels], bool)
    own = (found & alike.reshape(found.shape)).any(axis=1)
    new = np.flatnonzero((near.scores < rule.threshold) & ~own)
    return Detection(
        boxes=np.concatenate([record.boxes, near.boxes[new]]),
        scores=np.concatenate([record.scores, near.scores[new]]),
        labels=(*record.labels, *(near.labels[i] for i in new)),
        floor=rule.threshold - rule.sure,
    )


ANSWERS = field_answers(
    Detection,
    _FORM,
    _detection,
    finite=lambda record: (record.boxes, record.scores),
    shares=lambda record: (record.scores,),
    check=lambda record, labels, thing: check_labels(record.labels, labels, thing),
    check_fields=_check_corners,
    complete=_complete,
)


def _checked_box(
    xywh: Sequence[float], label: str, where: str, size: Size | None, *, crowd: bool = False
) -> TrueBox:
    """A box of left, top, width and height.

    Args:
        xywh: In pixels of the upright photo.
        label: Its class, as the model calls it.
        where: What to call it in errors.
        size: Height and width of the photo; None: not known.
        crowd: See `TrueBox`.

    Raises:
        DataError: EDGE-DATA-024, it has no area, or lies outside.
    """
    if len(xywh) != 4 or not all(map(math.isfinite, xywh)):
        raise bad_box(where, "four numbers: left, top, width, height", str(list(xywh)))
    left, top, width, height = map(float, xywh)
    if width <= 0 or height <= 0:
        raise bad_box(where, "a width and height above 0", f"{width:g} x {height:g}")
    right, bottom = left + width, top + height
    check_within("a box", (left, top), (right, bottom), size, where, bad_box)
    return TrueBox(xyxy=(left, top, right, bottom), label=label, crowd=crowd)


def _from_line(
    given: Sequence[tuple[float, float, float, float, str | int]], line: LineInput
) -> TrueBoxes:
    known = line.known
    named = [known.named(label) for *_, label in given]
    if unknown := [each[4] for each, name in zip(given, named, strict=True) if name is None]:
        raise unknown_classes(known, line.where, unknown)
    return TrueBoxes(
        boxes=tuple(
            _checked_box(each[:4], name or "", f"{line.where}, box {i}", line.size)
            for i, (each, name) in enumerate(zip(given, named, strict=True), 1)
        )
    )


def _from_coco(image: CocoImage) -> TrueBoxes:
    wanted = "[left, top, width, height]"
    return TrueBoxes(
        boxes=tuple(
            _checked_box(
                read_raw(note.bbox, list[float], where, wanted, bad_box),
                image.classes[note.category_id],
                where,
                image.size,
                crowd=is_crowd(note),
            )
            for where, note in image.notes
        )
    )


TRUTH = TruthReader(
    key="boxes",
    type=list[tuple[float, float, float, float, str | int]],
    from_line=_from_line,
    coco=("bbox", "iscrowd"),
    from_coco=_from_coco,
)
