"""segment/1: the class of each pixel."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    RecordReader,
    check_labels,
    check_numbers,
    check_probabilities,
    each_sample,
    flat_map,
    sigmoid,
    softmax,
    wrong_outputs,
)
from edgeserve.tasks.segmentation import Segment, Segmentation

__all__ = ["reader", "segmentation"]


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
        raise wrong_outputs(
            f"output {step.output!r} as floats with an axis of classes, height and width, a sample",
            f"{value.dtype} {list(value.shape)}",
        )
    scores = check_numbers(np.moveaxis(np.asarray(value, np.float32), step.axis, 0), "scores")
    if step.activation == "sigmoid":
        return _two(scores, labels)
    _check_classes(labels, len(scores))
    shares = softmax(scores, 0) if step.activation == "softmax" else check_probabilities(scores)
    return Segmentation(mask=scores.argmax(axis=0), labels=labels, margin=_lead(shares))


def _two(scores: np.ndarray, labels: tuple[str, ...]) -> Segmentation:
    """One score a pixel: something, or nothing."""
    if len(scores) != 1:
        raise wrong_outputs("one score a pixel, for sigmoid", f"{len(scores)}")
    _check_classes(labels, 2)
    share = sigmoid(scores[0])
    return Segmentation(mask=share >= 0.5, labels=labels, margin=np.abs(2 * share - 1))


def _lead(shares: np.ndarray) -> np.ndarray:
    """By how much the best of each pixel's shares [classes, H, W] leads the second: float32."""
    if len(shares) == 1:
        return np.ones(shares.shape[1:], np.float32)
    best = np.partition(shares, len(shares) - 2, axis=0)[-2:]
    return np.asarray(best[1] - best[0], np.float32)


def _check_classes(labels: tuple[str, ...], classes: int, *, least: bool = False) -> None:
    fits = len(labels) >= classes if least else len(labels) == classes
    check_labels(labels, fits, f"{classes}, one a class")
