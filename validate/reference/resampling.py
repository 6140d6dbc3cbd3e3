"""Resampling as Pillow, OpenCV and torchvision do it, as matrices of weights.

Without antialiasing they sample at half-pixel centres, as OpenCV and torchvision do; with it the
kernel is widened by the scale, as Pillow does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def resampling_matrix(old: int, new: int, kernel: str, antialias: bool) -> np.ndarray:
    """Weights float64 [new, old] of a resampling along one axis; each row sums to 1.

    Args:
        old: Pixels before.
        new: Pixels after.
        kernel: "nearest", "floor" (the pixel at the rounded-down place), "box", "bilinear",
            "hamming", "bicubic", "lanczos", or "area" (the mean over the covered interval).
        antialias: Widen the kernel by the scale where pixels are lost.
    """
    scale = old / new
    places = np.arange(new)
    matrix = np.zeros((new, old))
    if kernel in ("nearest", "floor"):
        at = (places + 0.5) * scale if kernel == "nearest" else places * scale
        matrix[places, np.clip(np.floor(at).astype(int), 0, old - 1)] = 1
        return matrix
    edges = np.arange(old)
    if kernel == "area":
        low, high = (places * scale)[:, None], ((places + 1) * scale)[:, None]
        matrix = np.clip(np.minimum(high, edges + 1) - np.maximum(low, edges), 0, None)
        return np.asarray(matrix / matrix.sum(1, keepdims=True))
    support, weigh = _KERNELS[kernel if antialias else f"{kernel}-plain"]
    wide = max(scale, 1.0) if antialias else 1.0
    centre = (places + 0.5) * scale
    reach = math.ceil(support * wide) + 1
    taps = np.floor(centre).astype(int)[:, None] + np.arange(-reach, reach + 1)
    weights = weigh((taps + 0.5 - centre[:, None]) / wide)
    if antialias:  # Pillow leaves out what lies beyond the picture; others repeat its edge
        weights = np.where((taps >= 0) & (taps < old), weights, 0.0)
    np.add.at(matrix, (places[:, None], np.clip(taps, 0, old - 1)), weights)
    return np.asarray(matrix / matrix.sum(1, keepdims=True))


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(1 - np.abs(x), 0, None))


_KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, _triangle),
    "bilinear-plain": (1.0, _triangle),
    "hamming": (
        1.0,
        lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0),
    ),
    "bicubic": (2.0, lambda x: _cubic(x, -0.5)),
    "bicubic-plain": (2.0, lambda x: _cubic(x, -0.75)),
    "lanczos": (3.0, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}
