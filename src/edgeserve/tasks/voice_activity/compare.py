"""Frames compared: speech or not, at a probability of 0.5."""

from __future__ import annotations

import numpy as np

from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_all_flipped
from edgeserve.tasks.voice_activity import Voice

__all__ = ["COMPARISON"]


def _margins(record: Voice) -> np.ndarray:
    """How far each frame is from flipping: ``|p - (1 - p)|``, float64 [n]."""
    return np.asarray(np.abs(2 * record.prob.astype(np.float64) - 1))


def _compare(rule: DecisionRule, reference: Voice, answer: Voice, sure: float) -> DecisionCounts:
    clear = _margins(reference) >= sure
    if answer.prob.shape != reference.prob.shape:
        return count_all_flipped(DecisionCounts(clear.size, 0, int(clear.sum()), 0))
    flips = (reference.prob >= 0.5) != (answer.prob >= 0.5)
    return DecisionCounts(
        clear.size, int(flips.sum()), int(clear.sum()), int((flips & clear).sum())
    )


def _margin(rule: DecisionRule, record: Voice) -> float:
    return float(_margins(record).max(initial=0.0))


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


COMPARISON = RecordComparison(compare=_compare, margin=_margin, gap=_gap, describe=_describe)
