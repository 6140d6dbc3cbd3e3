"""pool/1 and l2_normalize/1, and the embedding that is read from their result."""

from __future__ import annotations

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.processing import PoolMode
from edgeserve.types.records import Embedding

__all__ = ["embedding", "l2_normalize", "pool"]

_LEAST_COUNT = np.float32(1e-9)
_LEAST_NORM = 1e-12


def pool(tokens: np.ndarray, mask: np.ndarray, mode: PoolMode) -> np.ndarray:
    """pool/1: the vectors of each row's tokens to one vector, in float32.

    What stands at padding has no say, not even NaN; a row without tokens pools to zeros.

    Args:
        tokens: [batch, tokens, d].
        mask: [batch, tokens], 0 where there is padding.
        mode: How.

    Returns:
        float32 [batch, d].
    """
    real = mask != 0
    tokens = np.asarray(tokens, np.float32)
    if mode == "mean":
        count = real.sum(axis=1, dtype=np.float32)[:, None]
        return np.asarray(_total(tokens, real) / np.maximum(count, _LEAST_COUNT))
    if not real.shape[1]:
        return np.zeros((tokens.shape[0], tokens.shape[2]), np.float32)
    if mode == "max":
        picked = np.where(real[..., None], tokens, np.float32(-np.inf)).max(axis=1)
    else:
        last = real.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
        at = real.argmax(axis=1) if mode == "cls" else last
        picked = tokens[np.arange(len(tokens)), at]
    return np.asarray(np.where(real.any(axis=1)[:, None], picked, np.float32(0)))


def _total(tokens: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Sum of each row's real tokens, float32 [batch, d]."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.matmul(real[:, None, :].astype(np.float32), tokens)[:, 0]
    if np.isfinite(total).all():
        return np.asarray(total)
    # Either a token is not finite, or padding is, which must not show: 0 * NaN is NaN.
    return np.asarray(np.where(real[..., None], tokens, np.float32(0)).sum(axis=1))


def l2_normalize(values: np.ndarray) -> np.ndarray:
    """l2_normalize/1: divide by the L2 norm over the last axis, which counts as 1e-12 at least.

    In float64, where no square of a float32 overflows or vanishes, rounded once to float32.
    """
    exact = np.asarray(values, np.float64)
    norm = np.sqrt(np.square(exact).sum(axis=-1, keepdims=True))
    unit: np.ndarray = (exact / np.maximum(norm, _LEAST_NORM)).astype(np.float32)
    return unit


def embedding(vector: np.ndarray) -> Embedding:
    """The record of one vector [d].

    Raises:
        ProcessingError: EDGE-PROCESS-009, a component is NaN or infinite.
    """
    finite = np.isfinite(vector)
    if not finite.all():
        raise ProcessingError(
            "EDGE-PROCESS-009",
            "vector",
            wanted="numbers",
            got=f"NaN or infinity in {int(vector.size - finite.sum())} of {vector.size} components",
            hint="check this input; if nothing is odd with it, the artifact is broken: validate it",
        )
    return Embedding(vector=vector)
