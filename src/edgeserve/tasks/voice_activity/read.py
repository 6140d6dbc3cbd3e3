"""frames/1: the probability of speech in each frame."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    RecordReader,
    check_numbers,
    check_probabilities,
    each_sample,
    sigmoid,
    softmax,
    wrong_outputs,
)
from edgeserve.tasks.voice_activity import Frames, Voice

__all__ = ["reader", "voice"]


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the frames of each sample."""
    step = model.step
    assert isinstance(step, Frames)
    return each_sample(step.output, lambda value: voice(step, value))


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
