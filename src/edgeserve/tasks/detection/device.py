"""detect/1: boxes out of a detector's outputs, in pixels of the upright picture, and compared."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.processing.arrays import (
    Arrays,
    activated,
    check_numbers,
    check_probabilities,
    wrong_outputs,
)
from edgeserve.processing.image.pipeline import ImageTransform
from edgeserve.processing.outputs.places import found_reader, sliced
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader, check_labels
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.detection import SCHEMA, Detect, Detection
from edgeserve.tasks.matching import Matches, found_comparison, match_found, visible_things


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the boxes of each sample.

    Raises:
        ProcessingError: EDGE-PROCESS-002 the input that boxes are places in, -006 a slice.
    """
    step = model.step
    assert isinstance(step, Detect)
    return found_reader(step, step.input, model, Detector(step, model.labels))


def to_xyxy(boxes: np.ndarray, form: str) -> np.ndarray:
    """Boxes [n, 4] of a form as two corners, xyxy in float64."""
    a, b = np.asarray(boxes, np.float64)[:, :2], np.asarray(boxes, np.float64)[:, 2:]
    if form == "cxcywh":
        return np.concatenate([a - b / 2, a + b / 2], axis=1)
    if form == "xywh":
        return np.concatenate([a, a + b], axis=1)
    if form == "yxyx":
        return np.concatenate([a[:, ::-1], b[:, ::-1]], axis=1)
    return np.concatenate([a, b], axis=1)


def non_max_suppression(
    boxes: np.ndarray, kinds: np.ndarray | None, limit: float, most: int
) -> list[int]:
    """Greedy non-maximum suppression of boxes that are sorted, best first.

    In turn each box that is left is kept, and those after it that overlap it by more than ``limit``
    (IoU) go.

    Args:
        boxes: xyxy [n, 4].
        kinds: Class of each [n], of which only equal ones compete; None: all do.
        limit: Largest overlap that two kept boxes may have.
        most: How many are kept at most.

    Returns:
        Indexes of the kept ones, rising.
    """
    alive = np.ones(len(boxes), bool)
    kept: list[int] = []
    for i in range(len(boxes)):
        if not alive[i]:
            continue
        kept.append(i)
        if len(kept) == most:
            break
        over = iou(boxes[i : i + 1], boxes[i + 1 :])[0] > limit
        alive[i + 1 :] &= ~(over if kinds is None else over & (kinds[i + 1 :] == kinds[i]))
    return kept


class Detector:
    """Reads one detector's outputs. Immutable, so threads may share it.

    Args:
        step: What lies where.
        labels: Class names by index; where empty, a class is called by its index.
    """

    __slots__ = ("_labels", "_step")

    def __init__(self, step: Detect, labels: tuple[str, ...]) -> None:
        self._step, self._labels = step, labels

    def __call__(self, values: Arrays, transform: ImageTransform | None) -> Detection:
        """The record of one sample.

        Args:
            values: Its outputs by name.
            transform: Leads boxes back to the picture; None where callers brought tensors: boxes
                then stay in the unit of the model.

        Raises:
            ProcessingError: EDGE-PROCESS-008 another form than declared, -009 NaN, -010 scores that
                are no probabilities, -007 more classes than labels.
        """
        step = self._step
        boxes = sliced(step.boxes, values, "boxes", several=True)
        if boxes.shape[1] != 4:
            raise wrong_outputs("four numbers a box", f"{boxes.shape[1]}")
        scores, kinds = self._scored(values, len(boxes))
        chosen = np.flatnonzero(scores.astype(np.float64) >= step.threshold)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        boxes, scores, kinds = boxes[chosen], scores[chosen], kinds[chosen]
        check_numbers(boxes, "boxes")
        placed = to_xyxy(boxes, step.form)
        if transform is not None and step.unit == "relative":
            placed = placed * np.tile((transform.end[1], transform.end[0]), 2)
        kept = np.arange(min(len(placed), step.most))
        if step.nms is not None:
            among = kinds if step.per_class else None
            kept = np.array(non_max_suppression(placed, among, step.nms, step.most), int)
        placed = (transform.back(placed[kept]) if transform else placed[kept]).astype(np.float32)
        real = (placed[:, 2:] > placed[:, :2]).all(axis=1)
        kept, placed = kept[real], placed[real]
        named = tuple(self._label(int(kind)) for kind in kinds[kept])
        return Detection(boxes=placed, scores=scores[kept], labels=named)

    def _scored(self, values: Arrays, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Score float32 [n] and class int [n] of each box."""
        step = self._step
        scores = check_numbers(sliced(step.scores, values, "scores"), "scores")
        if step.classes is None:
            self._check_labels(scores.shape[1])
            best, kinds = _best(activated(scores, step.activation), step.background)
        else:
            best = activated(scores, step.activation)[:, 0]
            kinds = _whole(sliced(step.classes, values, "classes")[:, 0])
        if step.objectness is not None:
            objects = check_numbers(sliced(step.objectness, values, "objectness"), "objectness")
            squash = "none" if step.activation == "none" else "sigmoid"
            best = best * activated(objects, squash)[:, 0]
        if not len(best) == len(kinds) == count:
            got = f"{count} boxes, {len(best)} scores and {len(kinds)} classes"
            raise wrong_outputs("as many scores and classes as boxes", got)
        return check_probabilities(best), kinds

    def _check_labels(self, classes: int) -> None:
        count, background = len(self._labels), self._step.background
        fits = count == classes or (background == classes - 1 == count)
        check_labels(self._labels, fits, f"{classes}, one a class of detect/1")

    def _label(self, kind: int) -> str:
        if not self._labels:
            return str(kind)
        if not 0 <= kind < len(self._labels):
            raise wrong_outputs(f"classes below {len(self._labels)}, one a label", f"class {kind}")
        return self._labels[kind]


def _best(scores: np.ndarray, background: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The best class of each box; ties go to the lower index."""
    if background is not None and 0 <= background < scores.shape[1]:
        scores = scores.copy()
        scores[:, background] = -np.inf
    kinds = scores.argmax(axis=1)
    return scores[np.arange(len(scores)), kinds], kinds


def _whole(classes: np.ndarray) -> np.ndarray:
    """Class numbers, which some formats give as floats, as integers; NaN and negatives as -1."""
    with np.errstate(invalid="ignore"):
        return np.where(classes >= 0, np.rint(classes), -1).astype(np.int64)


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
