"""Masks compared: one decision a pixel."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison
from edgeserve.tasks.segmentation import Segmentation

__all__ = ["COMPARISON", "flipped_pixels"]


#: The share of pixels whose change an error covers: single pixels on an edge say nothing.
_MOST = 99.0


def _decided_pixels(record: Segmentation, sure: float) -> np.ndarray:
    """Pixels that are decided: all of them where the record does not say."""
    if record.margin is None:
        return np.ones(record.mask.shape, bool)
    return np.asarray(record.margin >= sure)


def _compare(
    rule: DecisionRule, reference: Segmentation, answer: Segmentation, sure: float
) -> DecisionCounts:
    clear = _decided_pixels(reference, sure)
    flips = flipped_pixels(reference, answer)
    units = DecisionCounts(
        flips.size, int(flips.sum()), int(clear.sum()), int((flips & clear).sum())
    )
    if reference.mask.shape != answer.mask.shape or not flips.size:
        return units
    return DecisionCounts(
        units.n,
        units.flips,
        units.decided,
        units.decided_flips,
        {"agreement": 1 - units.flips / units.n},
    )


def flipped_pixels(reference: Segmentation, answer: Segmentation) -> np.ndarray:
    """Pixels of another class, by label where both know labels: bool [H, W]."""
    if reference.mask.shape != answer.mask.shape:
        return np.ones(reference.mask.shape, bool)
    if reference.labels == answer.labels or not (reference.labels and answer.labels):
        return np.asarray(reference.mask != answer.mask)
    known = {label: i for i, label in enumerate(reference.labels)}
    same = np.array([known.get(label, -1) for label in answer.labels])
    got = np.where(answer.mask < len(same), same[np.clip(answer.mask, 0, len(same) - 1)], -1)
    return np.asarray(reference.mask != got)


def _margin(rule: DecisionRule, record: Segmentation) -> float:
    if not record.mask.size:
        return 0.0
    return 1.0 if record.margin is None else float(record.margin.max())


def _gap(rule: DecisionRule, reference: Segmentation, answer: Segmentation) -> float:
    """The largest margin that was turned over; or what 99 of 100 pixels keep their margin within.

    The largest change of any pixel would say little: on the edge of a thing margins jump.
    """
    if reference.margin is None or reference.mask.shape != answer.mask.shape:
        return 0.0
    turned = reference.margin[flipped_pixels(reference, answer)]
    worst = float(turned.max()) if turned.size else 0.0
    if answer.margin is None or not answer.margin.size:
        return worst
    moved = np.abs(reference.margin.astype(np.float64) - answer.margin)
    return max(worst, float(np.percentile(moved, _MOST)))


def _describe(record: Segmentation) -> str:
    if not record.mask.size:
        return "no pixel"
    counts = Counter(record.mask.ravel().tolist()).most_common(3)
    size = len(record.labels)
    named = [(record.labels[i] if 0 <= i < size else str(i), n) for i, n in counts]
    return ", ".join(f"{label} {100 * n / record.mask.size:.0f} %" for label, n in named)


COMPARISON = RecordComparison(compare=_compare, margin=_margin, gap=_gap, describe=_describe)
