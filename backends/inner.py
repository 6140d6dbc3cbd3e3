"""What inner tensors range over, channel by channel, in a form that formats can be compared by.

Formats lay tensors out differently and fuse ops, so single values cannot be compared; the smallest
and largest value of each channel can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Inner", "channel_axis"]


@dataclass(frozen=True)
class Inner:
    """The range of one inner tensor.

    Attributes:
        numel: How many numbers it holds.
        low: Smallest value of each channel, float64 [channels]; infinite where none is finite.
        high: Largest value of each channel, float64 [channels].
        finite: All numbers are.
    """

    numel: int
    low: np.ndarray
    high: np.ndarray
    finite: bool = True

    @classmethod
    def of(cls, array: np.ndarray, axis: int | None) -> Inner:
        """The range of an array along its channel axis."""
        values = array if array.dtype.kind == "f" else array.astype(np.float32)
        lined = values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0)
        lined = lined.reshape(lined.shape[0], -1)
        known = np.isfinite(lined)
        every = bool(known.all())
        where = True if every else known
        return cls(
            numel=int(array.size),
            low=lined.min(axis=1, initial=np.inf, where=where).astype(np.float64),
            high=lined.max(axis=1, initial=-np.inf, where=where).astype(np.float64),
            finite=every,
        )

    def joined(self, other: Inner) -> Inner:
        """The range over both; where sizes differ, over all channels."""
        if self.low.shape != other.low.shape:
            return self.whole().joined(other.whole())
        return Inner(
            self.numel,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.finite and other.finite,
        )

    def whole(self) -> Inner:
        """The same with all channels as one."""
        low, high = self.low.min(initial=np.inf), self.high.max(initial=-np.inf)
        return Inner(self.numel, np.array([low]), np.array([high]), self.finite)

    @property
    def largest(self) -> float:
        """Largest finite magnitude; 0 where there is none."""
        both = np.concatenate([self.low, self.high])
        return float(np.abs(both[np.isfinite(both)]).max(initial=0.0))

    @property
    def spread(self) -> np.ndarray:
        """What each channel ranges over; 0 where nothing is finite."""
        return np.where(self.high >= self.low, self.high - self.low, 0.0)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Where PyTorch has a tensor's channels: behind the batch of pictures, else last."""
    if len(shape) < 2:
        return None
    return 1 if len(shape) in (4, 5) else len(shape) - 1
