"""Output steps on one batched output of a model, with a look at what they are given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.scores import softmax
from edgeserve.processing.vectors import l2_normalize, pool
from edgeserve.types.processing import L2Normalize, OutputStep, Pool, Softmax

__all__ = ["apply_output", "wrong_outputs"]


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


def wrong_outputs(wanted: str, got: str) -> ProcessingError:
    """The error for a model that gives something else than its processing was declared for."""
    return ProcessingError(
        "EDGE-PROCESS-008",
        "model outputs",
        wanted=wanted,
        got=got,
        hint="declare the task and signature that fit what the model gives",
    )
