"""Generated inputs on which the reference itself proves nothing: it trembles.

A norm over values that are all alike divides rounding errors by nearly nothing. On a constant
input such a program answers mostly noise, and another engine, rounding otherwise, answers other
noise: neither is wrong. How far the reference's own answers move when its input moves by a part in
a million tells such an input from a wrong file, whose answers are off where the reference stands
firm.

Source:
    N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, ch. 1: a
    forward error is bounded by the backward error times the condition number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgeserve.data import Feed

__all__ = ["MOST", "movement", "nudged"]

#: Share of each number by which an input is moved: some roundings of float32.
_NUDGE = 1e-6
#: How far answers may move by that, as a share of their scale: what is allowed of float32 files.
MOST = 1e-3


def nudged(feed: Feed, magnitudes: Mapping[str, float], seed: int) -> Feed:
    """The feed with every float moved by up to a part in a million; whole numbers as they are.

    Args:
        feed: The input.
        magnitudes: By input, the largest number that it usually holds: that is what zeros are
            moved by a millionth of.
        seed: Of the draw.
    """
    draw = np.random.default_rng(seed)
    moved = dict(feed)
    for name, array in feed.items():
        if array.dtype.kind == "f":
            by = _NUDGE * np.maximum(np.abs(array), magnitudes[name])
            noise = draw.uniform(-1, 1, array.shape)
            moved[name] = np.asarray(array + by * noise).astype(array.dtype)
    return moved


def movement(outputs: Feed, moved: Feed) -> float:
    """The largest difference of any float output, as a share of the output's largest value."""
    most = 0.0
    for name, array in outputs.items():
        if array.dtype.kind != "f" or not array.size or array.shape != moved[name].shape:
            continue
        known = np.isfinite(array) & np.isfinite(moved[name])
        before = array[known].astype(np.float64)
        scale = float(np.abs(before).max(initial=0.0))
        difference = float(np.abs(moved[name][known] - before).max(initial=0.0))
        if difference:
            most = max(most, difference / scale if scale else np.inf)
    return most
