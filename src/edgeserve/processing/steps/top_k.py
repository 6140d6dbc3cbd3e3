"""top_k/1: how a classification is read from its scores; the scores themselves stay."""

from __future__ import annotations

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.steps import OutputStep


class TopK(OutputStep, frozen=True, tag_field="step", tag="top_k/1"):
    """The ``k`` highest scores of ``output``, ties going to the lower index."""

    output: str
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top_k needs k >= 1, not {self.k}")


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """top_k/1: indexes of the ``k`` highest of ``scores`` [n], best first, ties to the lower index.

    Returns:
        Integers [min(k, n)].

    Raises:
        ProcessingError: EDGE-PROCESS-009, a score is NaN.
    """
    if np.isnan(scores).any():
        count = int(np.isnan(scores).sum())
        got = f"NaN in {count} of {scores.size} classes"
        hint = "check this input for NaN; if it has none, the artifact is broken: validate it"
        raise ProcessingError("EDGE-PROCESS-009", "scores", wanted="numbers", got=got, hint=hint)
    # Everything that ties with the k-th best stays in, so that the stable sort can settle the ties.
    rest = max(scores.size - k, 0)
    candidates = np.flatnonzero(scores >= np.partition(scores, rest)[rest])
    order = np.argsort(-scores[candidates], kind="stable")
    best: np.ndarray = candidates[order[:k]]
    return best
