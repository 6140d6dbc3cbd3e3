"""How far apart two sides are at each position of an output: tokens, frames, rows and columns.

A file that is wrong in one place only (the last token, a corner, the frame after a pad) is right
nearly everywhere, whatever channel is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Places", "Worst"]

#: Outputs of more positions are not looked at place by place.
_MOST = 1 << 16


@dataclass(frozen=True)
class Worst:
    """The position that is furthest off on its own scale.

    Attributes:
        at: Its index along each axis that is neither the batch's nor the channels'.
        relative: Its largest difference on that scale.
        share: Its part of all squared error.
    """

    at: tuple[int, ...]
    relative: float
    share: float


class Places:
    """One field over many inputs, position by position. Answers of one input each are taken in."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] | None = None
        self._kept = np.zeros((4, 0))  # lowest, highest, largest difference, squared error
        self._lost = False

    def add(
        self,
        shape: tuple[int, ...],
        wanted: np.ndarray,
        apart: np.ndarray,
        known: np.ndarray | None,
    ) -> None:
        """Take one input in.

        Args:
            shape: Of all axes but the batch's and the channels'.
            wanted: The reference's numbers, [channels, positions].
            apart: Absolute differences, 0 where either side is not finite.
            known: Where the reference is finite; None: everywhere.
        """
        if self._shape is None:
            self._shape = shape
        joins = len(shape) == len(self._shape) == 1 or shape == self._shape
        if self._lost or not joins or not shape or not 1 < math.prod(shape) <= _MOST:
            self._lost = True
            return
        self._shape = max(self._shape, shape)
        where = True if known is None else known
        size = math.prod(self._shape)
        if size > self._kept.shape[1]:
            self._kept = _longer(self._kept, size)
        some = self._kept[:, : wanted.shape[1]]
        some[0] = np.minimum(some[0], wanted.min(axis=0, initial=np.inf, where=where))
        some[1] = np.maximum(some[1], wanted.max(axis=0, initial=-np.inf, where=where))
        some[2] = np.maximum(some[2], apart.max(axis=0, initial=0.0))
        with np.errstate(over="ignore"):
            some[3] += np.einsum("ij,ij->j", apart, apart)

    def worst(self, least: float) -> Worst | None:
        """The worst position; None where the output has none, or too many.

        Args:
            least: No position's scale counts as smaller.
        """
        if self._lost or self._shape is None or not self._kept.shape[1]:
            return None
        low, high, apart, noise = self._kept
        with np.errstate(invalid="ignore"):
            scale = np.minimum(np.maximum(np.abs(low), np.abs(high)), high - low)
        shares = apart / np.maximum(np.where(high >= low, scale, 0.0), least)
        at, total = int(np.argmax(shares)), float(noise.sum())
        place = tuple(int(i) for i in np.unravel_index(at, self._shape))
        return Worst(place, float(shares[at]), float(noise[at] / total) if total else 0.0)


def _longer(kept: np.ndarray, size: int) -> np.ndarray:
    """The same with room for more positions, of which nothing is known yet."""
    found = np.zeros((4, size))
    found[0], found[1] = np.inf, -np.inf
    found[:, : kept.shape[1]] = kept
    return found
