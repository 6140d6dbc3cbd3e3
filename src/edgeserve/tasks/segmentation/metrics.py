"""Masks against the reference's: mean intersection over union."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.segmentation.compare import flipped_pixels

__all__ = ["METRICS", "MeanIoU"]


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
        right = ~flipped_pixels(reference, answer)
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


METRICS = MeanIoU
