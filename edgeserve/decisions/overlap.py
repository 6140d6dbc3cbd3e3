"""How much boxes overlap."""

from __future__ import annotations

import numpy as np

__all__ = ["iou"]


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of each box with each other, in float64.

    Args:
        first: xyxy [n, 4].
        second: xyxy [m, 4], in the same unit.

    Returns:
        float64 [n, m], 0 to 1; 0 where neither has an area.
    """
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    union = _area(one)[:, None] + _area(other)[None] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _area(boxes: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1))
