"""One output over many inputs: how far two sides are apart in each field, channel and position.

Positions are tokens, frames, rows and columns. A file that is wrong in one place only (the last
token, a corner, the frame after a pad) is right nearly everywhere, whatever channel is looked
at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgeserve.validate.compare.output_fields import FieldLayout, OutputField

#: Where numbers are finite; None: everywhere.
_Known = np.ndarray | None

#: Outputs of more positions are not looked at place by place.
_MAX_POSITIONS = 1 << 16


@dataclass(frozen=True)
class WorstPosition:
    """The position that is furthest off on its own scale.

    Attributes:
        at: Its index along each axis that is neither the batch's nor the channels'.
        relative: Its largest difference on that scale.
        share: Its part of all squared error.
    """

    at: tuple[int, ...]
    relative: float
    share: float


class PositionStats:
    """One field over many inputs, position by position. Answers of one input each are taken in."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] | None = None
        self._kept = np.zeros((4, 0))  # lowest, highest, largest difference, squared error
        self._lost = False

    def add(
        self, shape: tuple[int, ...], wanted: np.ndarray, apart: np.ndarray, known: _Known
    ) -> None:
        """Take one input in.

        Args:
            shape: Of all axes but the batch's and the channels'.
            wanted: The reference's numbers, [channels, positions].
            apart: Absolute differences, 0 where either side is not finite.
            known: Where the reference is finite.
        """
        if self._shape is None:
            self._shape = shape
        joins = len(shape) == len(self._shape) == 1 or shape == self._shape
        if self._lost or not joins or not shape or not 1 < math.prod(shape) <= _MAX_POSITIONS:
            self._lost = True
            return
        self._shape = max(self._shape, shape)
        where = True if known is None else known
        size = math.prod(self._shape)
        if size > self._kept.shape[1]:
            self._kept = _grown(self._kept, size)
        some = self._kept[:, : wanted.shape[1]]
        some[0] = np.minimum(some[0], wanted.min(axis=0, initial=np.inf, where=where))
        some[1] = np.maximum(some[1], wanted.max(axis=0, initial=-np.inf, where=where))
        some[2] = np.maximum(some[2], apart.max(axis=0, initial=0.0))
        with np.errstate(over="ignore"):
            some[3] += np.einsum("ij,ij->j", apart, apart)

    def worst(self, least: float) -> WorstPosition | None:
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
        return WorstPosition(place, float(shares[at]), float(noise[at] / total) if total else 0.0)


def _grown(kept: np.ndarray, size: int) -> np.ndarray:
    """The same with room for more positions, of which nothing is known yet."""
    found = np.zeros((4, size))
    found[0], found[1] = np.inf, -np.inf
    found[:, : kept.shape[1]] = kept
    return found


#: A field's scale is no smaller than this share of its output's largest magnitude.
_MIN_OUTPUT_SHARE = 1e-4

#: A channel's own scale is no smaller than this share of its field's.
_MIN_FIELD_SHARE = 1e-2

#: A channel's signal counts as no smaller than this share of the mean signal of its field: noise on
#: a channel that hardly moves is measured by what moves beside it.
_MIN_SIGNAL_SHARE = 0.05

#: Answers up to so many numbers have their divergence measured.
_MAX_DIVERGENCE_NUMBERS = 1 << 20


def by_channel(array: np.ndarray, axis: int | None) -> np.ndarray:
    """The array as [channels, all else]; one channel where it has no such axis."""
    if axis is None or axis >= array.ndim:
        return array.reshape(1, -1)
    size = array.size // max(1, array.shape[axis])  # -1 cannot be told of an empty array
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], size)


def decibels(signal: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Ratios of two powers in dB; infinite without noise, whatever the signal."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = 10 * (np.log10(np.maximum(signal, 1e-300)) - np.log10(noise))
    return np.asarray(np.where(noise == 0, np.inf, found))


@dataclass
class _ChannelSums:
    """Per channel, over all inputs: float64 [channels] each."""

    origin: np.ndarray  # float32: mean of the first array, so that an offset costs no digits
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    total: np.ndarray  # of the reference less its origin
    squares: np.ndarray
    apart: np.ndarray  # largest |answer - reference|
    apart_total: np.ndarray
    noise: np.ndarray

    @classmethod
    def start(cls, values: np.ndarray, known: _Known) -> _ChannelSums:
        size = values.shape[0]
        total = values.sum(axis=1, where=True if known is None else known)
        mean = (total / np.maximum(_count(values, known), 1)).astype(values.dtype)
        return cls(mean, np.full(size, np.inf), np.full(size, -np.inf), *np.zeros((6, size)))


class OutputStats:
    """One output over many inputs.

    Attributes:
        ids: What was compared, in order.
        largest: Largest |answer - reference| of each input, float64 [fields] each.
        magnitudes: Largest |reference| of each input, float64 [fields] each.
        magnitude: The largest of them all; asked for once an input.
    """

    def __init__(self, split: FieldLayout, is_number: bool) -> None:
        self.split, self.is_number = split, is_number
        self.ids: list[str] = []
        self.largest: list[np.ndarray] = []
        self.magnitudes: list[np.ndarray] = []
        self.magnitude = 0.0
        self._sums: _ChannelSums | None = None
        self._by_place = [PositionStats() for _ in split.fields]
        self._divergence = np.zeros((len(split.fields), 3))  # total, largest, how many answers

    def add(self, thing: str, reference: np.ndarray, answer: np.ndarray) -> None:
        """Compare one input; both arrays have one shape and went through `comparable_floats`."""
        wanted, got = by_channel(reference, self.split.axis), by_channel(answer, self.split.axis)
        sure = _finite(wanted)
        both = _finite(got)
        known = both if sure is None else sure if both is None else sure & both
        if self._sums is None:
            self._sums = _ChannelSums.start(wanted, sure)
        low, high = _value_range(wanted, sure)
        self._sum(wanted, sure, low, high)
        everywhere, apart = self._apart(wanted, got, known)
        if reference.shape[:1] == (1,) and self.is_number:
            shape = tuple(n for a, n in enumerate(reference.shape) if a not in (0, self.split.axis))
            for field, places in zip(self.split.fields, self._by_place, strict=True):
                sure_of = None if sure is None else field.of(sure)
                places.add(shape, field.of(wanted), field.of(everywhere), sure_of)
        self.ids.append(thing)
        self.largest.append(self._by_field(apart))
        self.magnitudes.append(self._by_field(_magnitude(low, high)))
        self.magnitude = max(self.magnitude, float(self.magnitudes[-1].max(initial=0.0)))
        self._diverge(wanted, got)

    def _sum(self, wanted: np.ndarray, sure: _Known, low: np.ndarray, high: np.ndarray) -> None:
        sums = self._sums
        assert sums is not None
        sums.low, sums.high = np.minimum(sums.low, low), np.maximum(sums.high, high)
        with np.errstate(invalid="ignore"):
            rest = wanted - sums.origin[:, None]
        if sure is not None:
            rest = np.where(sure, rest, 0)
        sums.count += _count(wanted, sure)
        sums.total += rest.sum(axis=1, dtype=np.float64)
        sums.squares += np.einsum("ij,ij->i", rest, rest)

    def _apart(
        self, wanted: np.ndarray, got: np.ndarray, known: _Known
    ) -> tuple[np.ndarray, np.ndarray]:
        """Differences, and the largest of each channel."""
        sums = self._sums
        assert sums is not None
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(got - wanted)
        if known is not None:
            apart = np.where(known, apart, 0)
        largest = np.asarray(apart.max(axis=1, initial=0.0), np.float64)
        sums.apart = np.maximum(sums.apart, largest)
        sums.apart_total += apart.sum(axis=1, dtype=np.float64)
        with np.errstate(over="ignore"):
            sums.noise += np.einsum("ij,ij->i", apart, apart)
        return apart, largest

    def _by_field(self, channels: np.ndarray) -> np.ndarray:
        """The largest of each field's channels."""
        return np.array([float(f.of(channels).max(initial=0.0)) for f in self.split.fields])

    def _diverge(self, wanted: np.ndarray, got: np.ndarray) -> None:
        for i, field in enumerate(self.split.fields):
            if field.softmax and wanted.shape[0] > 1 and wanted.size <= _MAX_DIVERGENCE_NUMBERS:
                mean, largest = kl_divergence(field.of(wanted), field.of(got))
                total, before, count = self._divergence[i]
                self._divergence[i] = total + mean, max(before, largest), count + 1

    def scale(self, index: int, floor: float) -> float:
        """Scale of a field: see `edgeserve.validate.compare.tensors`; 1 for whole numbers."""
        if not self.is_number:
            return 1.0
        low, high = (np.asarray(end) for end in self._ends(index))
        return max(float(_scale(low, high)), _MIN_OUTPUT_SHARE * self.magnitude, floor)

    def range(self, index: int) -> float:
        """What the reference's values of a field range over."""
        low, high = self._ends(index)
        return max(high - low, 0.0)

    def _ends(self, index: int) -> tuple[float, float]:
        """Smallest and largest value of a field in the reference."""
        sums, field = self._sums, self.split.fields[index]
        if sums is None:
            return 0.0, 0.0
        return float(field.of(sums.low).min()), float(field.of(sums.high).max())

    def channels(self, index: int, floor: float) -> tuple[np.ndarray, np.ndarray]:
        """Indices of a field's channels, and how far each is off on its own scale."""
        sums, field = self._sums, self.split.fields[index]
        assert sums is not None
        least = max(_MIN_FIELD_SHARE * self.scale(index, floor), floor)
        scales = np.maximum(_scale(field.of(sums.low), field.of(sums.high)), least)
        return self._places(field), field.of(sums.apart) / scales

    def place(self, index: int, floor: float) -> WorstPosition | None:
        """The position at which a field is furthest off; None where the output has none."""
        return self._by_place[index].worst(max(_MIN_FIELD_SHARE * self.scale(index, floor), floor))

    def _places(self, field: OutputField) -> np.ndarray:
        assert self._sums is not None
        every = np.arange(self._sums.low.size)
        return every if field.channels is None else np.asarray(field.channels)

    def mean(self, index: int) -> float:
        """Mean |answer - reference| of a field."""
        sums, field = self._sums, self.split.fields[index]
        if sums is None:
            return 0.0
        return float(field.of(sums.apart_total).sum() / max(1, field.of(sums.count).sum()))

    def signal(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean power around its mean, and mean squared error, of each channel of a field."""
        sums, field = self._sums, self.split.fields[index]
        assert sums is not None
        count = np.maximum(field.of(sums.count), 1)
        mean = field.of(sums.total) / count
        power = np.maximum(field.of(sums.squares) / count - np.square(mean), 0.0)
        return power, field.of(sums.noise) / count

    def snr(self, index: int) -> tuple[float, int, float]:
        """Signal to noise of a field in dB, its noisiest channel, and that channel's in dB."""
        power, noise = self.signal(index)
        quiet = np.maximum(power, _MIN_SIGNAL_SHARE * power.mean())
        each = decibels(quiet, noise)
        worst = int(np.argmin(each))
        place = int(self._places(self.split.fields[index])[worst])
        return float(decibels(power.mean(), noise.mean())), place, float(each[worst])

    def divergence(self, index: int) -> tuple[float, float] | None:
        """Mean and largest divergence of logits from the reference's, in nats.

        None for other fields, and where answers are too large for it.
        """
        total, largest, count = self._divergence[index].tolist()
        return (total / count, largest) if count else None


def _finite(values: np.ndarray) -> _Known:
    found = np.isfinite(values)
    return None if found.all() else found


def _count(values: np.ndarray, known: _Known) -> np.ndarray:
    """How many numbers count in each row."""
    if known is None:
        return np.full(values.shape[0], float(values.shape[1]))
    return np.asarray(known.sum(axis=1), np.float64)


def _value_range(values: np.ndarray, sure: _Known) -> tuple[np.ndarray, np.ndarray]:
    where = True if sure is None else sure
    low = values.min(axis=1, initial=np.inf, where=where)
    high = values.max(axis=1, initial=-np.inf, where=where)
    return low.astype(np.float64), high.astype(np.float64)


def _magnitude(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Largest |x| of each channel; 0 where it holds nothing finite."""
    return np.where(high >= low, np.maximum(np.abs(low), np.abs(high)), 0.0)


def _scale(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """What values between ``low`` and ``high`` are measured by; 0 where there are none."""
    with np.errstate(invalid="ignore"):
        largest = np.maximum(np.abs(low), np.abs(high))
        scale = np.minimum(largest, np.maximum(high - low, largest / 100))
    return np.asarray(np.where(high >= low, scale, 0.0))


def kl_divergence(wanted: np.ndarray, got: np.ndarray) -> tuple[float, float]:
    """Kullback-Leibler divergence of softmax over the channels, in nats: mean and largest.

    Args:
        wanted: The reference's logits, [channels, positions].
        got: The other ones.
    """
    found = kl_by_position(log_softmax(wanted), log_softmax(got))
    return (float(found.mean()), float(found.max())) if found.size else (0.0, 0.0)


def kl_by_position(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Divergence at each position of two logarithms of probabilities, [channels, positions]."""
    with np.errstate(invalid="ignore", over="ignore"):
        parts = np.where(np.isfinite(p), np.exp(p) * (p - np.where(np.isfinite(p), q, 0.0)), 0.0)
    return np.asarray(np.maximum(parts.sum(axis=0), 0.0))


def log_softmax(values: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities in logits [channels, positions], in float64."""
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        rest = values - values.max(axis=0, keepdims=True)
        return np.asarray(rest - np.log(np.exp(rest).sum(axis=0, keepdims=True)))
