"""Output steps on one batched output of a model: softmax/1, top_k/1, pool/1 and l2_normalize/1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.outputs.checks import softmax, unusable_outputs, wrong_outputs
from edgeserve.types.processing import L2Normalize, Pool, PoolMode, Softmax
from edgeserve.types.steps import OutputStep
from edgeserve.types.tensors import Signature

__all__ = ["apply_output", "check_form", "l2_normalize", "pool", "top_k"]


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


def apply_output(
    step: OutputStep, value: np.ndarray, feed: Mapping[str, np.ndarray] | None
) -> np.ndarray:
    """Carry out one step.

    Args:
        step: What to do; top_k/1 leaves the value alone, since it is a way of reading it.
        value: The output, axis 0 the samples.
        feed: What the model was fed.

    Raises:
        ProcessingError: EDGE-PROCESS-008 the output has another form than the step needs, -026
            there is no feed to take a mask from.
    """
    if isinstance(step, Softmax):
        return _softmaxed(step, value)
    if isinstance(step, Pool):
        return _pooled(step, value, feed)
    if isinstance(step, L2Normalize):
        if value.ndim < 2 or value.dtype.kind != "f":
            raise wrong_outputs(f"output {step.output!r} as floats [batch, d]", _form(value))
        return l2_normalize(value)
    return value


def _softmaxed(step: Softmax, value: np.ndarray) -> np.ndarray:
    axis = step.axis + 1 if step.axis >= 0 else step.axis
    if not -value.ndim < axis < value.ndim:
        wanted = f"output {step.output!r} with axis {step.axis}"
        raise wrong_outputs(wanted, str(list(value.shape)))
    return softmax(value, axis)


def _pooled(step: Pool, value: np.ndarray, feed: Mapping[str, np.ndarray] | None) -> np.ndarray:
    if feed is None or step.mask not in feed:
        raise ProcessingError(
            "EDGE-PROCESS-026",
            f"step 'pool/1' of output {step.output!r}",
            wanted=f"the feed, for its mask {step.mask!r}",
            got="no feed" if feed is None else f"a feed of {sorted(feed)}",
            hint="give finish() the batch that the model was run with: finish(outputs, feed)",
        )
    mask = feed[step.mask]
    if value.ndim != 3 or value.dtype.kind != "f" or value.shape[:2] != mask.shape:
        wanted = f"output {step.output!r} as floats [batch, tokens, d], {list(mask.shape)} of them"
        raise wrong_outputs(wanted, _form(value))
    return pool(value, mask, step.mode)


def _form(value: np.ndarray) -> str:
    return f"{value.dtype} {list(value.shape)}"


def check_form(output: str, signature: Signature, rank: int, wanted: str) -> None:
    """Refuse an output of another rank, or of whole numbers.

    Raises:
        ProcessingError: EDGE-PROCESS-006.
    """
    spec = signature.output(output)
    if len(spec.shape) != rank or not spec.dtype.startswith("float"):
        got = f"{spec.dtype} {list(spec.shape)} of output {output!r}"
        raise unusable_outputs(got, f"floats {wanted}")
