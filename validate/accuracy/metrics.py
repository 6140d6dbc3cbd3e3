"""Metrics against ground truth: average precision of boxes, mean IoU of masks, F1 of spans.

Sources:
    T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014, and its rules of
    evaluation: greedy matching by score at overlaps from 0.5 to 0.95, a hundred boxes a class
      and
    picture, crowds that count for nothing, average precision over 101 recalls.
    M. Everingham et al., "The PASCAL Visual Object Classes (VOC) challenge", International
      Journal
    of Computer Vision 88 (2010) 303-338: intersection over union of each class over all
      pictures,
    in the pixels of the photo.
    E. F. Tjong Kim Sang, F. De Meulder, "Introduction to the CoNLL-2003 shared task", CoNLL
      2003: a
    span is right where its start, end and label are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.processing.image.resize import ImageTransform
from edgeserve.tasks.detection import Detection, TrueBox, TrueBoxes
from edgeserve.tasks.detection.compare import iou, visible_boxes
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.token_classification import Tokens, TrueSpans
from edgeserve.tasks.voice_activity import TrueSegments, Voice
from edgeserve.types.records import Record

__all__ = [
    "IOU_THRESHOLDS",
    "BoxRow",
    "ClassMatches",
    "F1Row",
    "MaskRow",
    "average_precisions",
    "box_row",
    "f1",
    "frame_row",
    "mask_row",
    "mean_ious",
    "span_row",
]


#: Overlaps (IoU) from which a box counts as found; ``map50`` is of the first alone.
IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
_MAX_BOXES = 100
_ROUNDING = 1e-10
#: Numbers that are worked on at a time.
_NUMBERS = 1 << 21


class ClassMatches(NamedTuple):
    """One side's boxes of one class in one picture, the surest first.

    Attributes:
        scores: float64 [n].
        hits: Whether each is a true box, at each of `IOU_THRESHOLDS`: bool [10, n].
        counts: Whether each counts: it lies in no crowd: bool [10, n].
    """

    scores: np.ndarray
    hits: np.ndarray
    counts: np.ndarray


class BoxRow(NamedTuple):
    """One picture.

    Attributes:
        wanted: How many true boxes of each class there are, crowds apart.
        found: Of the reference and of the artifact: what was found of each class.
    """

    wanted: Mapping[str, int]
    found: tuple[Mapping[str, ClassMatches], Mapping[str, ClassMatches]]


def box_row(truth: TrueBoxes, reference: Record | None, answer: Record | None) -> BoxRow:
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
    return BoxRow(wanted, (_class_matches(truth, reference), _class_matches(truth, answer)))


def _class_matches(truth: TrueBoxes, record: Record | None) -> dict[str, ClassMatches]:
    if not isinstance(record, Detection):
        return {}
    held: dict[str, list[int]] = {}
    for i in visible_boxes(record):
        held.setdefault(record.labels[i], []).append(i)
    return {
        label: _match_boxes([box for box in truth.boxes if box.label == label], record, indexes)
        for label, indexes in held.items()
    }


def _match_boxes(
    boxes: Sequence[TrueBox], record: Detection, indexes: Sequence[int]
) -> ClassMatches:
    """Boxes of one class matched: each in turn takes the one it overlaps most of those left."""
    scores = record.scores[indexes].astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:_MAX_BOXES]
    mine = record.boxes[indexes][order].astype(np.float64)
    crowd = np.array([box.crowd for box in boxes], bool)
    overlaps = _iou_with_crowds(mine, boxes, crowd)
    least = np.minimum(IOU_THRESHOLDS, 1 - _ROUNDING)[:, None, None]
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
        area = np.maximum((mine[:, 2:] - mine[:, :2]).prod(axis=1), _ROUNDING)
        whole = np.where(crowd, shared / area[:, None], whole)
    return whole


def average_precisions(
    groups: Sequence[Sequence[BoxRow]], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """``map50`` and ``map`` (0.5 to 0.95) of both sides; see `stats.paired_tests`."""
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
    groups: Sequence[Sequence[BoxRow]],
    weights: np.ndarray,
    total: np.ndarray,
    label: str,
    side: int,
) -> np.ndarray:
    """Average precision of one class at each overlap: float64 [10, draws]; 0 without true boxes."""
    held = [
        (g, row.found[side][label])
        for g, rows in enumerate(groups)
        for row in rows
        if label in row.found[side]
    ]
    precisions = np.zeros((len(IOU_THRESHOLDS), len(weights)))
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


class MaskRow(NamedTuple):
    """Pixels of one picture, counted by class; pictures themselves are not kept.

    Attributes:
        classes: Those that the truth or a side shows: int64 [c].
        wanted: Pixels of each that are true: int64 [c].
        got: Pixels of each that a side shows, of the reference and of the artifact: int64 [2, c].
        right: Those of them that are true: int64 [2, c].
    """

    classes: np.ndarray
    wanted: np.ndarray
    got: np.ndarray
    right: np.ndarray


def mask_row(
    truth: np.ndarray,
    way: ImageTransform,
    labels: Sequence[str],
    reference: Record | None,
    answer: Record | None,
) -> MaskRow:
    """Count one picture; a side that is no mask shows nothing.

    Each pixel of the photo takes the class that lies under its centre in the model's own output.
    Unlabelled ones do not count, nor do those that the model was not shown (`center_crop`).

    Args:
        truth: Class of each pixel, int32 [H, W]; -1 unlabelled.
        way: From the photo to the model's input.
        labels: The package's, which the truth counts in.
        reference: The reference's mask.
        answer: The artifact's mask.
    """
    rows, columns = way.seen(way.end)
    true = _take(truth, np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0))
    sides = [_shown_classes(record, way, labels, true.shape) for record in (reference, answer)]
    size = 2 + max(int(each.max(initial=0)) for each in (true, *sides))
    blank = true < 0
    wanted = _class_counts(true, size)
    got = np.stack([_class_counts(np.where(blank, -1, side), size) for side in sides])
    right = np.stack([_class_counts(np.where(side == true, true, -1), size) for side in sides])
    kept = np.flatnonzero(wanted + got.sum(axis=0))
    return MaskRow(kept, wanted[kept], got[:, kept], right[:, kept])


def _take(mask: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Some rows and columns, in any order and number."""
    return np.asarray(mask.take(rows, axis=0).take(columns, axis=1))


def _class_counts(mask: np.ndarray, size: int) -> np.ndarray:
    """Pixels of each class; -1 is none."""
    return np.bincount((mask + 1).ravel(), minlength=size)[1:]


def _shown_classes(
    record: Record | None, way: ImageTransform, labels: Sequence[str], size: tuple[int, ...]
) -> np.ndarray:
    """One side's class of each pixel that the model was shown, int32 [H, W]; -1 for none."""
    if not isinstance(record, Segmentation) or not record.mask.size:
        return np.full(size, -1, np.int32)
    mask = record.mask
    if record.labels and labels and record.labels != tuple(labels):
        index = {label: i for i, label in enumerate(labels)}
        ours = np.array([index.get(label, -1) for label in record.labels], np.int32)
        known = (mask >= 0) & (mask < len(ours))
        mask = np.where(known, ours[np.clip(mask, 0, len(ours) - 1)], -1)
    rows, columns = way.seen((mask.shape[0], mask.shape[1]))
    return _take(mask, rows[rows >= 0], columns[columns >= 0])


def mean_ious(groups: Sequence[Sequence[MaskRow]], weights: np.ndarray) -> dict[str, np.ndarray]:
    """``miou`` of both sides; see `edgeserve.validate.stats.paired_tests`.

    The mean is over the classes that the truth shows, so that it is of the same ones on both sides.
    """
    shown = [row.classes[row.wanted > 0] for rows in groups for row in rows]
    classes = np.unique(np.concatenate(shown))
    place = {int(c): i for i, c in enumerate(classes)}
    counts = np.zeros((5, len(groups), len(classes)))  # wanted, then got and right of each side
    for g, rows in enumerate(groups):
        for row in rows:
            mine = [i for i, c in enumerate(row.classes.tolist()) if c in place]
            into = [place[int(c)] for c in row.classes[mine]]
            for k, each in enumerate((row.wanted, *row.got, *row.right)):
                counts[k, g, into] += each[mine]
    wanted, *sides = (weights @ each for each in counts)
    values = np.full((2, len(weights)), np.nan)
    there = (wanted > 0).sum(axis=1)
    for i in (0, 1):
        got, right = sides[i], sides[2 + i]
        overlap = np.where(wanted > 0, right / np.maximum(wanted + got - right, 1), 0.0)
        some = there > 0
        values[i, some] = overlap.sum(axis=1)[some] / there[some]
    return {"miou": values}


class F1Row(NamedTuple):
    """What was found in one input; of the reference, then of the artifact.

    Attributes:
        both: Things that are true and found.
        sum: True things and found ones, added up.
    """

    both: tuple[int, int]
    sum: tuple[int, int]


def span_row(truth: TrueSpans, reference: Record | None, answer: Record | None) -> F1Row:
    """Spans of one text; a side that is no record of spans found none."""
    wanted = set(truth.spans)
    found = [
        {(s.start, s.end, s.label) for s in each.spans} if isinstance(each, Tokens) else set()
        for each in (reference, answer)
    ]
    return F1Row(
        (len(wanted & found[0]), len(wanted & found[1])),
        (len(wanted) + len(found[0]), len(wanted) + len(found[1])),
    )


def frame_row(truth: TrueSegments, reference: Record | None, answer: Record | None) -> F1Row:
    """Frames of one sound in which somebody speaks: those whose middle lies in a segment.

    Each side is counted in its own frames; one that has none misses all of the other's.
    """
    sides = [_frame_counts(truth, each) for each in (reference, answer)]
    for mine, other in ((0, 1), (1, 0)):
        if sides[mine] is None:
            sides[mine] = (0, (sides[other] or (0, 0, 0))[1], 0)
    (first, *one), (second, *two) = (side or (0, 0, 0) for side in sides)
    return F1Row((first, second), (sum(one), sum(two)))


def _frame_counts(truth: TrueSegments, record: Record | None) -> tuple[int, int, int] | None:
    """Frames that are true and found, that are true, that are found."""
    if not isinstance(record, Voice):
        return None
    middles = (np.arange(record.prob.size) + 0.5) * record.step_s
    wanted = np.zeros(record.prob.size, bool)
    for start, end in truth.segments:
        wanted |= (middles >= start) & (middles < end)
    found = record.prob >= 0.5
    return int((wanted & found).sum()), int(wanted.sum()), int(found.sum())


def f1(groups: Sequence[Sequence[F1Row]], weights: np.ndarray) -> dict[str, np.ndarray]:
    """``f1`` of both sides; see `edgeserve.validate.stats.paired_tests`."""
    both = np.array([np.sum([row.both for row in rows], axis=0) for rows in groups], np.float64)
    total = np.array([np.sum([row.sum for row in rows], axis=0) for rows in groups], np.float64)
    right, size = (weights @ both).T, (weights @ total).T
    return {"f1": np.where(size > 0, 2 * right / np.maximum(size, 1), np.nan)}
