"""Which floats stand for infinity, for all that compares outputs: the gate and the Wrapper."""

from __future__ import annotations

import numpy as np

__all__ = ["HUGE", "plain_floats"]

#: Magnitudes above this stand for infinity: masks are filled with the largest float, not with inf.
HUGE = 1e30


def plain_floats(array: np.ndarray) -> np.ndarray:
    """As floats that can be subtracted; huge numbers as infinity."""
    wide = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    values = np.asarray(array, wide)
    if not values.size or (values.max() < HUGE and values.min() > -HUGE):  # no NaN among them
        return values
    return np.where(np.abs(values) >= HUGE, np.copysign(np.inf, values), values)
