"""Voice activity: each frame is speech or not, at a probability of 0.5."""

from __future__ import annotations

import numpy as np

from edgeserve.decisions.units import Kind, Rule, Units, all_flip
from edgeserve.types.records import Voice

__all__ = ["FRAMES"]


def _margins(record: Voice) -> np.ndarray:
    """How far each frame is from flipping: ``|p - (1 - p)|``, float64 [n]."""
    return np.asarray(np.abs(2 * record.prob.astype(np.float64) - 1))


def _compare(rule: Rule, reference: Voice, answer: Voice, sure: float) -> Units:
    clear = _margins(reference) >= sure
    if answer.prob.shape != reference.prob.shape:
        return all_flip(Units(clear.size, 0, int(clear.sum()), 0))
    flips = (reference.prob >= 0.5) != (answer.prob >= 0.5)
    return Units(clear.size, int(flips.sum()), int(clear.sum()), int((flips & clear).sum()))


def _margin(rule: Rule, record: Voice) -> float:
    return float(_margins(record).max(initial=0.0))


def _gap(rule: Rule, reference: Voice, answer: Voice) -> float:
    """Largest change of a frame's margin."""
    if answer.prob.shape != reference.prob.shape or not reference.prob.size:
        return 0.0
    moved = np.abs(reference.prob.astype(np.float64) - answer.prob)
    return float(2 * moved.max())


def _describe(record: Voice) -> str:
    spoken = int((record.prob >= 0.5).sum())
    seconds = spoken * record.step_s
    return f"speech in {spoken} of {record.prob.size} frames ({seconds:.2f} s)"


FRAMES = Kind(unit="frames", compare=_compare, margin=_margin, gap=_gap, describe=_describe)
