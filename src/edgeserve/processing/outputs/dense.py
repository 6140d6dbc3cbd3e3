"""segment/1, depth/1 and frames/1: a decision for each pixel, or for each frame of sound."""

from __future__ import annotations

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.outputs.steps import (
    check_numbers,
    check_probabilities,
    sigmoid,
    softmax,
    wrong_outputs,
)
from edgeserve.tasks.depth import Depth, Depths
from edgeserve.tasks.segmentation import Segment, Segmentation
from edgeserve.tasks.voice_activity import Frames, Voice

__all__ = ["depth", "segmentation", "voice"]


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
        mask = _flat(value)
        _check_labels(labels, None if not mask.size else int(mask.max()) + 1, least=True)
        return Segmentation(mask=mask, labels=labels)
    if value.ndim != 3 or not -3 <= step.axis < 3 or value.dtype.kind != "f":
        raise wrong_outputs(
            f"output {step.output!r} as floats with an axis of classes, height and width, a sample",
            f"{value.dtype} {list(value.shape)}",
        )
    scores = check_numbers(np.moveaxis(np.asarray(value, np.float32), step.axis, 0), "scores")
    if step.activation == "sigmoid":
        return _two(scores, labels)
    _check_labels(labels, len(scores))
    shares = softmax(scores, 0) if step.activation == "softmax" else check_probabilities(scores)
    return Segmentation(mask=scores.argmax(axis=0), labels=labels, margin=_lead(shares))


def _two(scores: np.ndarray, labels: tuple[str, ...]) -> Segmentation:
    """One score a pixel: something, or nothing."""
    if len(scores) != 1:
        raise wrong_outputs("one score a pixel, for sigmoid", f"{len(scores)}")
    _check_labels(labels, 2)
    share = sigmoid(scores[0])
    return Segmentation(mask=share >= 0.5, labels=labels, margin=np.abs(2 * share - 1))


def _lead(shares: np.ndarray) -> np.ndarray:
    """By how much the best of each pixel's shares [classes, H, W] leads the second: float32."""
    if len(shares) == 1:
        return np.ones(shares.shape[1:], np.float32)
    best = np.partition(shares, len(shares) - 2, axis=0)[-2:]
    return np.asarray(best[1] - best[0], np.float32)


def _check_labels(labels: tuple[str, ...], classes: int | None, *, least: bool = False) -> None:
    if not labels or classes is None or len(labels) == classes:
        return
    if least and len(labels) > classes:
        return
    raise ProcessingError(
        "EDGE-PROCESS-007",
        "labels",
        wanted=f"{classes}, one a class",
        got=str(len(labels)),
        hint="give the label list that the model was trained with, or none at all",
    )


def _flat(value: np.ndarray) -> np.ndarray:
    """One sample's map [height, width]; axes of size 1 before or after it are left out."""
    shape = value.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 2:
        raise wrong_outputs("one number a pixel, [height, width] a sample", str(list(value.shape)))
    return value.reshape(shape)


def depth(step: Depths, value: np.ndarray) -> Depth:
    """depth/1 on one sample: [height, width], axes of size 1 around it.

    Raises:
        ProcessingError: EDGE-PROCESS-008 (form), -009 (NaN or infinity).
    """
    if value.dtype.kind != "f":
        raise wrong_outputs(f"output {step.output!r} as floats", str(value.dtype))
    return Depth(map=check_numbers(np.asarray(_flat(value), np.float32), "depth"))


def voice(step: Frames, value: np.ndarray) -> Voice:
    """frames/1 on one sample: [frames], or [frames, classes] with an index.

    Raises:
        ProcessingError: EDGE-PROCESS-008 (form), -009 (NaN), -010 (no probability).
    """
    if value.dtype.kind != "f":
        raise wrong_outputs(f"output {step.output!r} as floats", str(value.dtype))
    scores = check_numbers(np.asarray(value, np.float32), "frames")
    if step.index is not None:
        if scores.ndim != 2 or step.index >= scores.shape[1]:
            wanted = f"[frames, classes] with a class {step.index}, a sample"
            raise wrong_outputs(wanted, str(list(value.shape)))
        shares = softmax(scores, -1) if step.activation == "softmax" else scores
        scores = shares[:, step.index]
    elif sum(size != 1 for size in scores.shape) > 1:
        raise wrong_outputs("one number a frame, a sample", str(list(value.shape)))
    prob = sigmoid(scores) if step.activation == "sigmoid" else scores
    return Voice(prob=check_probabilities(prob.reshape(-1)), step_s=step.step_s)
