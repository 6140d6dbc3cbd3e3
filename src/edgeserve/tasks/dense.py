"""Dense prediction: one decision a pixel (segmentation, depth) or a frame (voice activity).

A frame is speech or not at a probability of 0.5.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.tasks.base import DecisionCounts, DecisionRule, TaskSpec, count_all_flipped
from edgeserve.types.records import Depth, Segmentation, Voice

__all__ = [
    "DEPTH_ESTIMATION",
    "DEPTH_OFF",
    "SEGMENTATION",
    "VOICE_ACTIVITY",
    "DepthError",
    "MeanIoU",
]


#: A depth that is off by more than this share of the reference's is another.
DEPTH_OFF = 0.1
#: No depth counts as smaller than this share of the picture's largest.
_DEPTH_FLOOR = 1e-3
#: The share of pixels whose change an error covers: single pixels on an edge say nothing.
_MOST = 99.0


def _decided_pixels(record: Segmentation, sure: float) -> np.ndarray:
    """Pixels that are decided: all of them where the record does not say."""
    if record.margin is None:
        return np.ones(record.mask.shape, bool)
    return np.asarray(record.margin >= sure)


def _compare_masks(
    rule: DecisionRule, reference: Segmentation, answer: Segmentation, sure: float
) -> DecisionCounts:
    clear = _decided_pixels(reference, sure)
    flips = _flipped_pixels(reference, answer)
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


def _flipped_pixels(reference: Segmentation, answer: Segmentation) -> np.ndarray:
    """Pixels of another class, by label where both know labels: bool [H, W]."""
    if reference.mask.shape != answer.mask.shape:
        return np.ones(reference.mask.shape, bool)
    if reference.labels == answer.labels or not (reference.labels and answer.labels):
        return np.asarray(reference.mask != answer.mask)
    known = {label: i for i, label in enumerate(reference.labels)}
    same = np.array([known.get(label, -1) for label in answer.labels])
    got = np.where(answer.mask < len(same), same[np.clip(answer.mask, 0, len(same) - 1)], -1)
    return np.asarray(reference.mask != got)


def _mask_margin(rule: DecisionRule, record: Segmentation) -> float:
    if not record.mask.size:
        return 0.0
    return 1.0 if record.margin is None else float(record.margin.max())


def _mask_gap(rule: DecisionRule, reference: Segmentation, answer: Segmentation) -> float:
    """The largest margin that was turned over; or what 99 of 100 pixels keep their margin within.

    The largest change of any pixel would say little: on the edge of a thing margins jump.
    """
    if reference.margin is None or reference.mask.shape != answer.mask.shape:
        return 0.0
    turned = reference.margin[_flipped_pixels(reference, answer)]
    worst = float(turned.max()) if turned.size else 0.0
    if answer.margin is None or not answer.margin.size:
        return worst
    moved = np.abs(reference.margin.astype(np.float64) - answer.margin)
    return max(worst, float(np.percentile(moved, _MOST)))


def _describe_mask(record: Segmentation) -> str:
    if not record.mask.size:
        return "no pixel"
    counts = Counter(record.mask.ravel().tolist()).most_common(3)
    size = len(record.labels)
    named = [(record.labels[i] if 0 <= i < size else str(i), n) for i, n in counts]
    return ", ".join(f"{label} {100 * n / record.mask.size:.0f} %" for label, n in named)


class MeanIoU:
    """Pixels that agree, and the mean over classes of intersection over union with the reference.

    Counted over all inputs, for classes that either of both shows anywhere.
    """

    def __init__(self, rule: DecisionRule) -> None:
        self._shared: Counter[int] = Counter()
        self._wanted: Counter[int] = Counter()
        self._got: Counter[int] = Counter()

    def add(self, reference: Segmentation, answer: Segmentation | None) -> None:
        """Take one input in; an answer of another size, or none, has no pixel right."""
        self._wanted.update(_counted(reference.mask))
        if answer is None or answer.mask.shape != reference.mask.shape:
            return
        right = ~_flipped_pixels(reference, answer)
        self._shared.update(_counted(reference.mask[right]))
        self._got.update(_counted(np.where(right, reference.mask, answer.mask)))

    def value(self) -> dict[str, float]:
        """``miou`` and ``agreement``."""
        total = sum(self._wanted.values())
        if not total:
            return {}
        each = [
            self._shared[c] / (self._wanted[c] + self._got[c] - self._shared[c])
            for c in sorted(self._wanted.keys() | self._got.keys())
        ]
        return {"miou": float(np.mean(each)), "agreement": sum(self._shared.values()) / total}


def _counted(mask: np.ndarray) -> dict[int, int]:
    classes, counts = np.unique(mask, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def _relative_error(reference: Depth, answer: Depth) -> np.ndarray:
    """How far each depth is off, as a share of the reference's: float64 [H, W]; NaN is infinite."""
    wanted, got = reference.map.astype(np.float64), answer.map.astype(np.float64)
    size = np.abs(wanted)
    floor = _DEPTH_FLOOR * float(size.max(initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(got - wanted) / np.maximum(size, floor)
    return np.asarray(np.where(got == wanted, 0.0, np.where(np.isnan(off), np.inf, off)))


def _compare_depths(
    rule: DecisionRule, reference: Depth, answer: Depth, sure: float
) -> DecisionCounts:
    count = reference.map.size
    if reference.map.shape != answer.map.shape:
        return count_all_flipped(DecisionCounts(count, 0, count, 0))
    off = _relative_error(reference, answer)
    flips = int((off > DEPTH_OFF).sum())
    figures = {"abs_rel": float(off.mean())} if count else {}
    return DecisionCounts(count, flips, count, flips, figures)


def _depth_gap(rule: DecisionRule, reference: Depth, answer: Depth) -> float:
    """What 99 of 100 pixels lie within, as a share of the reference's depth."""
    if reference.map.shape != answer.map.shape or not reference.map.size:
        return 0.0
    off = np.minimum(_relative_error(reference, answer), 1.0)
    return float(np.percentile(off, _MOST))


def _describe_depth(record: Depth) -> str:
    if not record.map.size:
        return "no pixel"
    low, middle, high = record.map.min(), np.median(record.map), record.map.max()
    return f"depth {low:.3g} to {high:.3g}, half of it below {middle:.3g}"


class DepthError:
    """Mean over all pixels of the relative error against the reference's depth."""

    def __init__(self, rule: DecisionRule) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, reference: Depth, answer: Depth | None) -> None:
        """Take one input in; an answer of another size, or none, is not measured."""
        if answer is not None and answer.map.shape == reference.map.shape:
            self._sum += float(_relative_error(reference, answer).sum())
            self._count += reference.map.size

    def value(self) -> dict[str, float]:
        """``abs_rel``."""
        return {"abs_rel": self._sum / self._count} if self._count else {}


SEGMENTATION = TaskSpec(
    unit="pixels",
    compare=_compare_masks,
    margin=_mask_margin,
    gap=_mask_gap,
    describe=_describe_mask,
    figures=MeanIoU,
)
DEPTH_ESTIMATION = TaskSpec(
    unit="pixels",
    compare=_compare_depths,
    margin=lambda rule, record: DEPTH_OFF if record.map.size else 0.0,
    gap=_depth_gap,
    describe=_describe_depth,
    figures=DepthError,
)


def _voice_margins(record: Voice) -> np.ndarray:
    """How far each frame is from flipping: ``|p - (1 - p)|``, float64 [n]."""
    return np.asarray(np.abs(2 * record.prob.astype(np.float64) - 1))


def _compare_voice(
    rule: DecisionRule, reference: Voice, answer: Voice, sure: float
) -> DecisionCounts:
    clear = _voice_margins(reference) >= sure
    if answer.prob.shape != reference.prob.shape:
        return count_all_flipped(DecisionCounts(clear.size, 0, int(clear.sum()), 0))
    flips = (reference.prob >= 0.5) != (answer.prob >= 0.5)
    return DecisionCounts(
        clear.size, int(flips.sum()), int(clear.sum()), int((flips & clear).sum())
    )


def _voice_margin(rule: DecisionRule, record: Voice) -> float:
    return float(_voice_margins(record).max(initial=0.0))


def _voice_gap(rule: DecisionRule, reference: Voice, answer: Voice) -> float:
    """Largest change of a frame's margin."""
    if answer.prob.shape != reference.prob.shape or not reference.prob.size:
        return 0.0
    moved = np.abs(reference.prob.astype(np.float64) - answer.prob)
    return float(2 * moved.max())


def _describe_voice(record: Voice) -> str:
    spoken = int((record.prob >= 0.5).sum())
    seconds = spoken * record.step_s
    return f"speech in {spoken} of {record.prob.size} frames ({seconds:.2f} s)"


VOICE_ACTIVITY = TaskSpec(
    unit="frames",
    compare=_compare_voice,
    margin=_voice_margin,
    gap=_voice_gap,
    describe=_describe_voice,
)
