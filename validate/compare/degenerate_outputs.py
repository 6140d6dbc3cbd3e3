"""What a field may not do whatever the precision: stand still, be zero, saturate, move a constant.

On the first natural inputs only, since it takes a dozen to see that something never moves. Each
rule asks for several steps of an 8-bit scale before it speaks: what is lost below that is rounding,
and the limits on noise and decisions weigh it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from edgeserve.validate.compare.field_stats import by_channel
from edgeserve.validate.compare.output_fields import (
    SAMPLED_ANSWERS,
    FieldLayout,
    OutputField,
    describe_field,
)

#: A movement counts from this share of the field's magnitude: a dozen steps of an 8-bit scale.
_MIN_MOVEMENT = 0.05
#: Scores are shares of one: what moves less, no 8-bit scale from 0 to 1 shows for certain.
_MIN_SCORE_MOVEMENT = 0.02
#: Standing still is moving less than this share of what the reference moves.
_CONSTANT_SHARE = 1e-3
#: A constant that is off by a tenth of its field is another constant, not a rounded one.
_CONSTANT_TOLERANCE = 0.1
#: Saturated scores lie this near to 0 or 1, nearly all of them, where most of the reference's lie
#: well inside.
_AT_END, _INSIDE = 2e-3, 0.05
_NEARLY_ALL, _MOST = 0.95, 0.5

#: Fields each of whose channels is a class: none may die.
_CLASSES = ("scores", "logits", "classes")


@dataclass(frozen=True)
class FieldFault:
    """What is wrong with a field.

    Attributes:
        kind: "field-moves", "constant-kept" or "scores-spread": names of checks.
        finding: In words.
    """

    kind: str
    finding: str


@dataclass
class _ChannelMovement:
    """One side's values, per channel."""

    low: np.ndarray
    high: np.ndarray
    moved: np.ndarray
    first: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, channels: int) -> _ChannelMovement:
        return cls(np.full(channels, np.inf), np.full(channels, -np.inf), np.zeros(channels))

    def add(self, values: np.ndarray, shape: tuple[int, ...]) -> None:
        known = np.isfinite(values)
        low = values.min(axis=1, initial=np.inf, where=known)
        high = values.max(axis=1, initial=-np.inf, where=known)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        first = self.first.setdefault(shape, values)
        if first is values:
            return
        both = known & np.isfinite(first)
        apart = np.abs(np.where(both, values, 0) - np.where(both, first, 0))
        self.moved = np.maximum(self.moved, apart.max(axis=1, initial=0.0))


class DegenerateOutputCheck:
    """An output's fields over the first natural inputs, on both sides."""

    def __init__(self, name: str, split: FieldLayout) -> None:
        self._name, self._split = name, split
        self._sides: tuple[_ChannelMovement, _ChannelMovement] | None = None
        self._ends = [np.zeros((2, 3)) for _ in split.fields]
        self._inputs = 0

    @property
    def full(self) -> bool:
        """Enough has been seen."""
        return self._inputs >= SAMPLED_ANSWERS

    def add(self, reference: np.ndarray, answer: np.ndarray) -> None:
        """Look at one input; both arrays have one shape and went through `comparable_floats`."""
        self._inputs += 1
        pair = [by_channel(array, self._split.axis) for array in (reference, answer)]
        if self._sides is None:
            size = pair[0].shape[0]
            self._sides = (_ChannelMovement.of(size), _ChannelMovement.of(size))
        for i, (side, values) in enumerate(zip(self._sides, pair, strict=True)):
            side.add(values, reference.shape)
            for ends, each in zip(self._ends, self._split.fields, strict=True):
                if each.word == "scores":
                    ends[i] += _saturation_counts(each.of(values))

    def faults(self, floor: float) -> Iterator[FieldFault]:
        """What is wrong, most telling first.

        Args:
            floor: No magnitude counts as smaller.
        """
        for i, each in enumerate(self._split.fields):
            moving = self._still(each, floor)
            found = moving or self._saturated(i, each) or self._other_constant(each, floor)
            if found is not None:
                yield found

    def _still(self, each: OutputField, floor: float) -> FieldFault | None:
        wanted, got, magnitude = self._of(each)
        score = _MIN_SCORE_MOVEMENT if each.word == "scores" else 0.0
        if magnitude >= max(floor, score) and not (got.low.any() or got.high.any()):
            finding = f"is zero; the reference's goes up to {magnitude:.3g}"
            return FieldFault("field-moves", f"{self._called(each)} {finding}")
        least = max(_MIN_MOVEMENT * magnitude, floor, score)
        if self._inputs < 2 or not wanted.moved.max(initial=0.0) >= least:
            return None
        if got.moved.max(initial=0.0) <= _CONSTANT_SHARE * wanted.moved.max():
            moves = f"moves by up to {wanted.moved.max():.3g} from input to input"
            finding = f"{self._called(each)} is constant; the reference's {moves}"
            return FieldFault("field-moves", finding)
        return self._dead(each, wanted, got, least)

    def _dead(
        self, each: OutputField, wanted: _ChannelMovement, got: _ChannelMovement, least: float
    ) -> FieldFault | None:
        """A class whose score never moves, though the reference's does."""
        if each.word not in _CLASSES or self._split.axis is None:
            return None
        still = got.moved <= _CONSTANT_SHARE * wanted.moved
        dead = np.flatnonzero((wanted.moved >= least) & still)
        if not dead.size:
            return None
        places = np.arange(wanted.moved.size) if each.channels is None else np.array(each.channels)
        listed = OutputField(each.word, tuple(int(place) for place in places[dead])).part
        stand = f"{listed} of {self._called(each)} stand{'s' if dead.size == 1 else ''} still"
        moves = f"move by up to {wanted.moved[dead].max():.3g} from input to input"
        return FieldFault("field-moves", f"{stand}; the reference's {moves}")

    def _other_constant(self, each: OutputField, floor: float) -> FieldFault | None:
        """Channels with one value everywhere in the reference, and another in the file."""
        wanted, got, magnitude = self._of(each)
        constant = (wanted.high == wanted.low) & (got.high >= got.low)
        with np.errstate(invalid="ignore"):  # channels that hold nothing finite
            apart = np.maximum(np.abs(got.low - wanted.low), np.abs(got.high - wanted.low))
        off = np.where(constant, apart, 0.0)
        worst = int(off.argmax()) if off.size else 0
        if not off.size or off[worst] <= max(_CONSTANT_TOLERANCE * magnitude, floor):
            return None
        end = got.low if abs(got.low[worst] - wanted.low[worst]) == off[worst] else got.high
        usual = f"where the reference is {wanted.low[worst]:.3g} on every input"
        return FieldFault("constant-kept", f"{self._called(each)} holds {end[worst]:.3g} {usual}")

    def _saturated(self, index: int, each: OutputField) -> FieldFault | None:
        (_, inside, count), (at_end, _, _) = self._ends[index]
        if not count or at_end < _NEARLY_ALL * count or inside < _MOST * count:
            return None
        share = f"{100 * at_end / count:.3g} % of {self._called(each)}"
        finding = f"{share} lie at 0 or 1; most of the reference's lie between"
        return FieldFault("scores-spread", finding)

    def _of(self, each: OutputField) -> tuple[_ChannelMovement, _ChannelMovement, float]:
        """Both sides of one field, and its magnitude in the reference."""
        assert self._sides is not None
        wanted, got = (
            _ChannelMovement(each.of(s.low), each.of(s.high), each.of(s.moved)) for s in self._sides
        )
        known = wanted.high >= wanted.low
        magnitudes = np.maximum(np.abs(wanted.low), np.abs(wanted.high))
        return wanted, got, float(magnitudes.max(initial=0.0, where=known))

    def _called(self, each: OutputField) -> str:
        return describe_field(each.word, self._name, each.part)


def _saturation_counts(values: np.ndarray) -> tuple[int, int, int]:
    """How many values lie at 0 or 1, how many well between, of how many."""
    at_end = (values <= _AT_END) | (values >= 1 - _AT_END)
    inside = (values >= _INSIDE) & (values <= 1 - _INSIDE)
    return int(at_end.sum()), int(inside.sum()), values.size
