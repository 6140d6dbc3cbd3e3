"""Numbers of outputs: softmax and sigmoid, and what is refused as no number or no probability."""

from __future__ import annotations

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.batch import Arrays

#: How far beyond 0..1 a probability may lie: quantized graphs end in steps of 1/256.
_SLACK = 0.01


def softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    """softmax/1: exponentials of ``scores - max`` over their sum, all in float32.

    NaN, and infinities of the kind that have no softmax, come out as NaN.
    """
    scores = np.asarray(scores, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
        normal: np.ndarray = powers / powers.sum(axis=axis, keepdims=True, dtype=np.float32)
    return normal


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` in float64, rounded once to float32."""
    exact = np.asarray(scores, np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-exact)), np.float32)


def check_numbers(values: np.ndarray, what: str) -> np.ndarray:
    """The values, which are to be finite.

    Raises:
        ProcessingError: EDGE-PROCESS-009, they are not.
    """
    finite = np.isfinite(values)
    if finite.all():
        return values
    got = f"NaN or infinity in {int(finite.size - finite.sum())} of {finite.size}"
    hint = "check this input for NaN; if it has none, the artifact is broken: validate it"
    raise ProcessingError("EDGE-PROCESS-009", what, wanted="numbers", got=got, hint=hint)


def are_probabilities(values: np.ndarray) -> bool:
    """Whether all numbers lie between 0 and 1, a hundredth beyond allowed for."""
    return not values.size or bool(values.min() >= -_SLACK and values.max() <= 1 + _SLACK)


def check_probabilities(scores: np.ndarray) -> np.ndarray:
    """The scores, which are to lie between 0 and 1, a hundredth beyond allowed for.

    Raises:
        ProcessingError: EDGE-PROCESS-010, they do not.
    """
    if are_probabilities(scores):
        return scores
    wanted = "probabilities, between 0 and 1"
    got = f"{float(scores.min()):.6g} to {float(scores.max()):.6g}"
    hint = "declare how the step makes probabilities of scores: its activation"
    raise ProcessingError("EDGE-PROCESS-010", "scores", wanted=wanted, got=got, hint=hint)


def wrong_outputs(wanted: str, got: str) -> ProcessingError:
    """The error for a model that gives something else than its processing was declared for."""
    hint = "declare the task and signature that fit what the model gives"
    return ProcessingError("EDGE-PROCESS-008", "model outputs", wanted=wanted, got=got, hint=hint)


def no_mask(step: str, output: str, mask: str, feed: Arrays | None) -> ProcessingError:
    """The error for a step whose mask is not in the feed."""
    where, wanted = f"step {step!r} of output {output!r}", f"the feed, for its mask {mask!r}"
    got = "no feed" if feed is None else f"a feed of {sorted(feed)}"
    hint = "give finish() the batch that the model was run with: finish(outputs, feed)"
    return ProcessingError("EDGE-PROCESS-026", where, wanted=wanted, got=got, hint=hint)
