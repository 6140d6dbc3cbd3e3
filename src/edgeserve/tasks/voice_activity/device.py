"""frames/1: speech or not in each frame, at a probability of 0.5, read and compared."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.arrays import (
    check_numbers,
    check_probabilities,
    sigmoid,
    softmax,
    wrong_outputs,
)
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader, each_sample
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.voice_activity import Frames, Voice


def _margins(record: Voice) -> np.ndarray:
    """How far each frame is from flipping: ``|p - (1 - p)|``, float64 [n]."""
    return np.asarray(np.abs(2 * record.prob.astype(np.float64) - 1))


def _compare(rule: DecisionRule, reference: Voice, answer: Voice, sure: float) -> DecisionCounts:
    clear = _margins(reference) >= sure
    if answer.prob.shape != reference.prob.shape:
        return count_flips(np.ones(clear.shape, bool), clear)
    return count_flips((reference.prob >= 0.5) != (answer.prob >= 0.5), clear)


def _gap(rule: DecisionRule, reference: Voice, answer: Voice) -> float:
    """Largest change of a frame's margin."""
    if answer.prob.shape != reference.prob.shape or not reference.prob.size:
        return 0.0
    moved = np.abs(reference.prob.astype(np.float64) - answer.prob)
    return float(2 * moved.max())


def _describe(record: Voice) -> str:
    spoken = int((record.prob >= 0.5).sum())
    seconds = spoken * record.step_s
    return f"speech in {spoken} of {record.prob.size} frames ({seconds:.2f} s)"


COMPARISON = RecordComparison(
    compare=_compare,
    margin=lambda rule, record: float(_margins(record).max(initial=0.0)),
    gap=_gap,
    describe=_describe,
)


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
