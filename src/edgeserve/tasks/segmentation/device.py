"""segment/1: the class of each pixel, read and compared."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.processing.arrays import (
    check_numbers,
    check_probabilities,
    sigmoid,
    softmax,
    wrong_outputs,
)
from edgeserve.processing.outputs.places import leads
from edgeserve.processing.outputs.reader import (
    ModelOutputs,
    RecordReader,
    check_labels,
    each_sample,
    flat_map,
)
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.segmentation import Segment, Segmentation

#: The share of pixels whose change an error covers: single pixels on an edge say nothing.
_MOST = 99.0


def _compare(
    rule: DecisionRule, reference: Segmentation, answer: Segmentation, sure: float
) -> DecisionCounts:
    flips = _flipped_pixels(reference, answer)
    margin = reference.margin  # without margins all pixels are decided
    clear = np.ones(flips.shape, bool) if margin is None else margin >= sure
    figures = {}
    if reference.mask.shape == answer.mask.shape and flips.size:
        figures["agreement"] = 1 - int(flips.sum()) / flips.size
    return count_flips(flips, clear, figures)


def _flipped_pixels(reference: Segmentation, answer: Segmentation) -> np.ndarray:
    """Pixels of another class, by label where both know labels: bool [H, W]."""
    if reference.mask.shape != answer.mask.shape:
        return np.ones(reference.mask.shape, bool)
    if reference.labels == answer.labels or not (reference.labels and answer.labels):
        return np.asarray(reference.mask != answer.mask)
    known = {label: i for i, label in enumerate(reference.labels)}
    same = np.array([known.get(label, -1) for label in answer.labels])
    got = np.where(answer.mask < len(same), same[np.clip(answer.mask, 0, len(same) - 1)], -1)
    return np.asarray(reference.mask != got)


def _gap(rule: DecisionRule, reference: Segmentation, answer: Segmentation) -> float:
    """The largest margin that was turned over; or what 99 of 100 pixels keep their margin within.

    The largest change of any pixel would say little: on the edge of a thing margins jump.
    """
    if reference.margin is None or reference.mask.shape != answer.mask.shape:
        return 0.0
    turned = reference.margin[_flipped_pixels(reference, answer)]
    worst = float(turned.max()) if turned.size else 0.0
    if answer.margin is None or not answer.margin.size:
        return worst
    moved = np.abs(reference.margin.astype(np.float64) - answer.margin)
    return max(worst, float(np.percentile(moved, _MOST)))


def _describe(record: Segmentation) -> str:
    if not record.mask.size:
        return "no pixel"
    counts = Counter(record.mask.ravel().tolist()).most_common(3)
    size = len(record.labels)
    named = [(record.labels[i] if 0 <= i < size else str(i), n) for i, n in counts]
    return ", ".join(f"{label} {100 * n / record.mask.size:.0f} %" for label, n in named)


def _margin(rule: DecisionRule, record: Segmentation) -> float:
    if not record.mask.size:
        return 0.0
    return 1.0 if record.margin is None else float(record.margin.max())


COMPARISON = RecordComparison(_compare, _margin, _gap, _describe)


def reader(model: ModelOutputs) -> RecordReader:
    """Reads a mask of each sample."""
    step = model.step
    assert isinstance(step, Segment)
    return each_sample(step.output, lambda value: segmentation(step, value, model.labels))


def segmentation(step: Segment, value: np.ndarray, labels: tuple[str, ...]) -> Segmentation:
    """segment/1 on one sample.

    Args:
        step: What to do.
        value: Floats with an axis of classes and two of pixels, or integers [height, width].
        labels: Class names by index, or none.

    Raises:
        ProcessingError: EDGE-PROCESS-007 (labels), -008 (form), -009 (NaN), -010 (no probability).
    """
    if value.dtype.kind in "iu":
        mask = flat_map(value)
        _check_classes(labels, int(mask.max()) + 1 if mask.size else 0, least=True)
        return Segmentation(mask=mask, labels=labels)
    if value.ndim != 3 or not -3 <= step.axis < 3 or value.dtype.kind != "f":
        axes = "an axis of classes, height and width, a sample"
        wanted = f"output {step.output!r} as floats with {axes}"
        raise wrong_outputs(wanted, f"{value.dtype} {list(value.shape)}")
    scores = check_numbers(np.moveaxis(np.asarray(value, np.float32), step.axis, 0), "scores")
    if step.activation == "sigmoid":
        return _two(scores, labels)
    _check_classes(labels, len(scores))
    shares = softmax(scores, 0) if step.activation == "softmax" else check_probabilities(scores)
    return Segmentation(mask=scores.argmax(axis=0), labels=labels, margin=leads(shares, 0))


def _two(scores: np.ndarray, labels: tuple[str, ...]) -> Segmentation:
    """One score a pixel: something, or nothing."""
    if len(scores) != 1:
        raise wrong_outputs("one score a pixel, for sigmoid", f"{len(scores)}")
    _check_classes(labels, 2)
    share = sigmoid(scores[0])
    return Segmentation(mask=share >= 0.5, labels=labels, margin=np.abs(2 * share - 1))


def _check_classes(labels: tuple[str, ...], classes: int, *, least: bool = False) -> None:
    fits = len(labels) >= classes if least else len(labels) == classes
    check_labels(labels, fits, f"{classes}, one a class")
