"""Mean overlap (IoU) of classes over pixels.

Source:
    M. Everingham et al., "The PASCAL Visual Object Classes (VOC) challenge", International Journal
    of Computer Vision 88 (2010) 303-338: intersection over union of each class over all pictures,
    in the pixels of the photo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from edgeserve.processing.image.pipeline import ImageTransform
from edgeserve.tasks.metrics import RowFigures, TaskMetrics, TruthPlace
from edgeserve.tasks.segmentation import DrawnMask, MaskFile, Segmentation
from edgeserve.tasks.segmentation.gate import true_mask
from edgeserve.types.records import Record


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
    transform: ImageTransform,
    labels: Sequence[str],
    reference: Record | None,
    answer: Record | None,
) -> MaskRow:
    """Count one picture; a side that is no mask shows nothing.

    Each pixel of the photo takes the class that lies under its centre in the model's own output.
    Unlabelled ones do not count, nor do those that the model was not shown (`center_crop`).

    Args:
        truth: Class of each pixel, int32 [H, W]; -1 unlabelled.
        transform: From the photo to the model's input.
        labels: The package's, which the truth counts in.
        reference: The reference's mask.
        answer: The artifact's mask.
    """
    rows, columns = transform.seen(transform.end)
    true = _take(truth, np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0))
    sides = [_shown_classes(each, transform, labels, true.shape) for each in (reference, answer)]
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
    record: Record | None, transform: ImageTransform, labels: Sequence[str], size: tuple[int, ...]
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
    rows, columns = transform.seen((mask.shape[0], mask.shape[1]))
    return _take(mask, rows[rows >= 0], columns[columns >= 0])


def mean_ious(
    groups: Sequence[Sequence[MaskRow]], weights: np.ndarray, *, shown: bool = False
) -> dict[str, np.ndarray]:
    """``miou`` of both sides; see `edgeserve.tasks.metrics.ReadRows`.

    The mean is over the classes that the truth shows, so that it is of the same ones on both sides.

    Args:
        groups: Rows of each group.
        weights: See `ReadRows`.
        shown: Also over those that a side alone shows; with ``agreement``, the share of pixels
            that are right.
    """
    kept = [row.classes[(row.wanted > 0) | shown] for rows in groups for row in rows]
    classes = np.unique(np.concatenate(kept))
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
    for i in (0, 1):
        got, right = sides[i], sides[2 + i]
        union = wanted + got - right
        overlap = np.where(union > 0, right / np.maximum(union, 1), 0.0)
        there = ((union if shown else wanted) > 0).sum(axis=1)
        some = there > 0
        values[i, some] = overlap.sum(axis=1)[some] / there[some]
    if not shown:
        return {"miou": values}
    with np.errstate(invalid="ignore"):
        right = np.stack([side.sum(axis=1) for side in sides[2:]]) / wanted.sum(axis=1)
    return {"miou": values, "agreement": right}


def _row(
    truth: DrawnMask | MaskFile, place: TruthPlace, reference: Record | None, answer: Record | None
) -> MaskRow | None:
    if place.size is None:  # made of no picture: there are no pixels to tell the truth of
        return None
    transform = ImageTransform(place.steps, place.size)
    return mask_row(true_mask(truth, place.size), transform, place.labels, reference, answer)


def _against(reference: Segmentation, answer: Segmentation | None) -> MaskRow:
    """The reference's mask as the truth; an answer of another size has no pixel right."""
    size = reference.mask.shape
    same = answer if answer is not None and answer.mask.shape == size else None
    transform = ImageTransform((), (size[0], size[1]))
    return mask_row(reference.mask, transform, reference.labels, same, None)


METRICS = TaskMetrics(
    figures=lambda rule: RowFigures(
        _against, partial(mean_ious, shown=True), ("miou", "agreement")
    ),
    titles={"miou": "mIoU"},
    row=_row,
    read=mean_ious,
)
