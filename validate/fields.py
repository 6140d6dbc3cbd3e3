"""Which parts of an output mean one thing: its fields, declared or inferred from what it holds.

A detector's output may hold boxes in hundreds of pixels and scores below one. On one common scale a
file whose scores are all zero looks perfect, so each field is compared on a scale of its own.

Where nothing is declared, the largest magnitude of each channel is looked at, along each axis of
fixed size. Sorted, they are cut where one is `APART` times the one before; channels of one level
are a field, wherever they stand. Channels that all hold shares (0 to 1) stay together: a class that
no input shows has scores a thousand times smaller than the others', and is a score all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from edgeserve.types.tensors import TensorSpec

__all__ = [
    "APART",
    "LOOKED_AT",
    "WHOLE",
    "Field",
    "Split",
    "axes_of",
    "called",
    "levels",
    "narrowest",
    "split_of",
]

#: How much larger the next field's channels must be. Channels of one field are alike within less;
#: at a ratio of eight, one scale for both leaves the smaller field 32 of 256 steps.
APART = 8.0

#: Magnitudes below this share of the largest count as zero: zeros belong to any field.
_NOTHING = 1e-9

#: Axes longer than this hold positions, not channels.
_MOST = 1 << 16

#: More levels than this are a spread, not fields.
_FIELDS = 6

#: How many of the reference's answers are looked at.
LOOKED_AT = 16

_EDGE = 1e-6

#: What an undeclared output is called, by a part of its name.
_BY_NAME = {
    "box": "boxes",
    "score": "scores",
    "prob": "scores",
    "logit": "logits",
    "mask": "mask",
    "embed": "embedding",
}


@dataclass(frozen=True)
class Field:
    """A part of an output.

    Attributes:
        word: "boxes", "scores", "classes", "mask", "logits", "embedding" or "values".
        channels: Indices along the split's axis, rising; None: the whole output.
        softmax: A softmax over the channels makes probabilities of them.
    """

    word: str
    channels: tuple[int, ...] | None = None
    softmax: bool = False

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Which channels, as half-open ranges; empty for the whole output."""
        pairs = enumerate(self.channels or ())
        found = [[c for _, c in run] for _, run in groupby(pairs, lambda pair: pair[1] - pair[0])]
        return tuple((run[0], run[-1] + 1) for run in found)

    @property
    def part(self) -> str:
        """Which channels, in words ("channels 4-83"); empty for the whole output."""
        if self.channels is None:
            return ""
        ends = [(start, stop - 1) for start, stop in self.runs]
        said = [f"{low}-{high}" if high > low else str(low) for low, high in ends]
        shown = ", ".join(said[:3]) + (", ..." if len(said) > 3 else "")
        return f"channel{'s' if len(self.channels) > 1 else ''} {shown}"


@dataclass(frozen=True)
class Split:
    """How an output is taken apart.

    Attributes:
        axis: Of its channels; None where it has none.
        fields: Each channel belongs to one.
    """

    axis: int | None
    fields: tuple[Field, ...]


def called(word: str, output: str, part: str) -> str:
    """A field of an output in words ("scores field of output 'y' (channels 4-83)")."""
    part = f" ({part})" if part else ""
    return f"{f'{word} field of ' if word not in ('', 'values') else ''}output {output!r}{part}"


#: An output of which nothing is known.
WHOLE = Split(None, (Field("values"),))


def axes_of(spec: TensorSpec) -> dict[int, int]:
    """Axes that may hold channels, with their sizes: fixed ones behind the batch."""
    pairs = enumerate(spec.shape)
    return {a: d for a, d in pairs if a and isinstance(d, int) and 1 < d <= _MOST}


def narrowest(axes: Mapping[int, int]) -> int | None:
    """The shortest of these axes: the likeliest to hold channels."""
    return min(axes, key=lambda axis: axes[axis], default=None)


def split_of(spec: TensorSpec, arrays: Sequence[np.ndarray]) -> Split:
    """The fields of an output of which nothing is declared.

    Args:
        spec: Its name and shape.
        arrays: What the reference gave for it, each with batch axis.
    """
    axes = {a: n for a, n in axes_of(spec).items() if all(array.shape[a] == n for array in arrays)}
    if not arrays or arrays[0].dtype.kind != "f" or not axes:
        return Split(narrowest(axes), (Field(_by_name(spec.name) or "values"),))
    found = {axis: _Ranges.along(axis, arrays) for axis in axes}
    cut = {axis: each.levels() for axis, each in found.items()}
    apart = [axis for axis in axes if len(set(cut[axis])) > 1]
    if not apart:
        axis = narrowest(axes)
        assert axis is not None
        return Split(axis, (Field(_by_name(spec.name) or found[axis].word()),))
    axis = min(apart, key=lambda axis: axes[axis])
    return Split(axis, _fields(found[axis], cut[axis]))


def _by_name(name: str) -> str:
    return next((word for part, word in _BY_NAME.items() if part in name.lower()), "")


@dataclass(frozen=True)
class _Ranges:
    """What each channel ranges over, float64 [channels]."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def along(cls, axis: int, arrays: Sequence[np.ndarray]) -> _Ranges:
        low, high = [], []
        for array in arrays:
            others = tuple(a for a in range(array.ndim) if a != axis)
            known = np.isfinite(array) & (np.abs(array) < 1e30)
            low.append(array.min(axis=others, initial=np.inf, where=known))
            high.append(array.max(axis=others, initial=-np.inf, where=known))
        return cls(np.min(low, axis=0).astype(np.float64), np.max(high, axis=0).astype(np.float64))

    def levels(self) -> np.ndarray:
        magnitudes = np.maximum(np.abs(self.low), np.abs(self.high))
        shares = (self.low >= -_EDGE) & (self.high <= 1 + _EDGE)
        return levels(np.where(np.isfinite(magnitudes), magnitudes, 0.0), shares)

    def word(self, channels: np.ndarray | None = None) -> str:
        low, high = (
            (self.low, self.high) if channels is None else (self.low[channels], self.high[channels])
        )
        within = low.min() >= -_EDGE and high.max() <= 1 + _EDGE
        return "scores" if within and (low.size != 4 or channels is not None) else "values"


def levels(magnitudes: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    """Which level each channel belongs to, int [channels], 0 the smallest; all 0 for one field.

    Args:
        magnitudes: Largest absolute value of each channel.
        shares: Channels whose values all lie between 0 and 1: they stay together.
    """
    whole = float(magnitudes.max(initial=0.0))
    known = magnitudes > _NOTHING * whole
    if shares is not None:
        magnitudes = _together(magnitudes, shares & known)
    rising = np.unique(magnitudes[known])
    cuts = [low for low, high in pairwise(rising) if high >= APART * low]
    if not cuts or len(cuts) >= _FIELDS:
        return np.zeros(magnitudes.shape, int)
    found = np.searchsorted(np.asarray(cuts), magnitudes, side="left")
    return _filled(found, known)


def _together(magnitudes: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The magnitudes with that of the largest share for all shares."""
    if not shares.any():
        return magnitudes
    return np.where(shares, magnitudes[shares].max(), magnitudes)


def _filled(found: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Channels that are all zero take the level of the known one nearest to them."""
    places = np.flatnonzero(known)
    nearest = np.abs(np.arange(found.size)[:, None] - places[None, :]).argmin(axis=1)
    return np.asarray(np.where(known, found, found[places[nearest]]))


def _fields(ranges: _Ranges, cut: np.ndarray) -> tuple[Field, ...]:
    """One field a level, in the order of their first channels."""
    fields = []
    for level in dict.fromkeys(int(each) for each in cut):
        channels = np.flatnonzero(cut == level)
        word = ranges.word(channels)
        word = "boxes" if word == "values" and channels.size == 4 else word
        fields.append(Field(word, tuple(int(channel) for channel in channels)))
    return tuple(fields)
