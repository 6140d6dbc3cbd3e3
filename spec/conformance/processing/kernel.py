"""resize/1 in plain integer arithmetic: what a language without Pillow implements.

Written from the description in ``spec/processing.md``, independent of edgeserve and of Pillow's
code path: the tests hold it byte-equal with Pillow. Clear before fast.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["resample"]

#: Bits after the binary point of a coefficient: 32 - 8 for the sample - 2 for overshoot.
BITS = 22


def resample(pixels: np.ndarray, height: int, width: int, kernel: str) -> np.ndarray:
    """Resample uint8 [h, w, channels] to ``height`` x ``width``."""
    if kernel == "nearest":
        rows = _nearest(pixels.shape[0], height)
        columns = _nearest(pixels.shape[1], width)
        return pixels[rows][:, columns]
    # Each pass rounds to 8 bits, so their order matters; an axis that keeps its size has no pass.
    lost_rows, lost_columns = pixels.shape[0] - height, pixels.shape[1] - width
    rows_first = lost_rows > 0 and lost_rows > 2 * lost_columns
    if rows_first:
        pixels = _rows(pixels, height, kernel)
    pixels = _rows(pixels.transpose(1, 0, 2), width, kernel).transpose(1, 0, 2)
    return pixels if rows_first else _rows(pixels, height, kernel)


def _nearest(old: int, new: int) -> list[int]:
    """Source index of each target index. The position is accumulated, step by step, in float64."""
    step = old / new
    position, indexes = step * 0.5, []
    for _ in range(new):
        indexes.append(int(position))
        position += step
    return indexes


def _rows(pixels: np.ndarray, new: int, kernel: str) -> np.ndarray:
    """One pass along axis 0."""
    if new == pixels.shape[0]:
        return pixels
    result = np.empty((new, *pixels.shape[1:]), np.uint8)
    for index, (first, weights) in enumerate(coefficients(pixels.shape[0], new, kernel)):
        window = pixels[first : first + len(weights)].astype(np.int64)
        total = np.tensordot(np.array(weights, np.int64), window, axes=1)
        result[index] = np.clip((total + (1 << (BITS - 1))) >> BITS, 0, 255)
    return result


def coefficients(old: int, new: int, kernel: str) -> list[tuple[int, list[int]]]:
    """For each target index: the first source index, and the integer weights from there on."""
    function, support = KERNELS[kernel]
    scale = old / new
    stretch = max(scale, 1.0)  # downscaling widens the kernel: that is the antialiasing
    reach = support * stretch
    found = []
    for index in range(new):
        center = (index + 0.5) * scale
        first = max(int(center - reach + 0.5), 0)
        end = min(int(center + reach + 0.5), old)
        weights = [function((at - center + 0.5) * (1.0 / stretch)) for at in range(first, end)]
        total = 0.0
        for weight in weights:
            total += weight
        found.append((first, [_fixed(weight / total if total else weight) for weight in weights]))
    return found


def _fixed(weight: float) -> int:
    """Weight with 22 bits after the point, rounded half away from zero."""
    scaled = weight * (1 << BITS)
    return int(scaled - 0.5) if weight < 0 else int(scaled + 0.5)


def _bilinear(x: float) -> float:
    return max(1.0 - abs(x), 0.0)


def _bicubic(x: float) -> float:
    # Keys' cubic convolution with a = -0.5.
    x = abs(x)
    if x < 1.0:
        return ((1.5 * x) - 2.5) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * -0.5
    return 0.0


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0


def _sinc(x: float) -> float:
    if x == 0.0:
        return 1.0
    x *= math.pi
    return math.sin(x) / x


KERNELS = {"bilinear": (_bilinear, 1.0), "bicubic": (_bicubic, 2.0), "lanczos": (_lanczos, 3.0)}
