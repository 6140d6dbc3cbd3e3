"""softmax/1 and top_k/1, and the classification that is read from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.records import Classification

__all__ = [
    "are_probabilities",
    "check_numbers",
    "check_probabilities",
    "classify",
    "sigmoid",
    "softmax",
    "top_k",
]

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
    raise ProcessingError(
        "EDGE-PROCESS-009",
        what,
        wanted="numbers",
        got=f"NaN or infinity in {int(finite.size - finite.sum())} of {finite.size}",
        hint="check this input for NaN; if it has none, the artifact is broken: validate it",
    )


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
    raise ProcessingError(
        "EDGE-PROCESS-010",
        "scores",
        wanted="probabilities, between 0 and 1",
        got=f"{float(scores.min()):.6g} to {float(scores.max()):.6g}",
        hint="declare how the step makes probabilities of scores: its activation",
    )


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """top_k/1: indexes of the ``k`` highest of ``scores`` [n], best first, ties to the lower index.

    Returns:
        Integers [min(k, n)].

    Raises:
        ProcessingError: EDGE-PROCESS-009, a score is NaN.
    """
    if np.isnan(scores).any():
        count = int(np.isnan(scores).sum())
        raise ProcessingError(
            "EDGE-PROCESS-009",
            "scores",
            wanted="numbers",
            got=f"NaN in {count} of {scores.size} classes",
            hint="check this input for NaN; if it has none, the artifact is broken: validate it",
        )
    # Everything that ties with the k-th best stays in, so that the stable sort can settle the ties.
    rest = max(scores.size - k, 0)
    candidates = np.flatnonzero(scores >= np.partition(scores, rest)[rest])
    order = np.argsort(-scores[candidates], kind="stable")
    best: np.ndarray = candidates[order[:k]]
    return best


def classify(scores: np.ndarray, k: int, labels: Sequence[str]) -> Classification:
    """Read the decision from probabilities [n], float32.

    Args:
        scores: Probability of each class.
        k: Length of ``top``; at least two entries are kept where there are two classes, so that the
            decision has a margin.
        labels: Name of each class; where empty, a class is called by its index.

    Raises:
        ProcessingError: EDGE-PROCESS-009 (NaN), EDGE-PROCESS-010 (scores beyond 0..1).
    """
    best = top_k(scores, max(k, 2))
    if scores[best[0]] > 1 + _SLACK or scores.min() < -_SLACK:
        raise ProcessingError(
            "EDGE-PROCESS-010",
            "scores",
            wanted="probabilities, between 0 and 1",
            got=f"{scores.min():.6g} to {scores[best[0]]:.6g}",
            hint="declare the output step softmax/1: the model gives logits",
        )
    indexes = best.tolist()
    names = [labels[index] if labels else str(index) for index in indexes]
    top = tuple(zip(names, scores[best].tolist(), strict=True))
    label, score = top[0]
    return Classification(
        label=label, score=score, top=top, index=indexes[0], indexes=tuple(indexes)
    )
