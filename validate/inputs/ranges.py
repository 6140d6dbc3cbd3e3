"""What numbers each generated input may hold: the range of what was seen, and beyond it.

An example is often constant: a mask of ones, a flag, a timestep, zeros. Drawn within its range such
an input would never vary, and a file that ignores it, or fails on another value, would be found
right. So a constant is widened (`InputRange.of`), indices run over the whole table that the program
looks them up in, and masks hide places at either end and between, whatever the example hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeserve.data import Feed
from edgeserve.tasks.base import HUGE
from edgeserve.types.tensors import TensorSpec


class InputStatistics:
    """Running mean, deviation and range of one input, over the numbers that went in.

    Infinities, and the huge numbers that stand for them in masks, do not count.
    """

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self._count = 0
        self._sum = self._squares = 0.0

    def add(self, array: np.ndarray) -> None:
        """Take an array in."""
        values = np.asarray(array, np.float64).ravel()
        values = values[np.abs(values) < HUGE]
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
            self._count += values.size
            self._sum += float(values.sum())
            self._squares += float(np.square(values).sum())

    @property
    def mean(self) -> float:
        """Mean; 0 before anything went in."""
        return self._sum / self._count if self._count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation; 1 before anything went in."""
        if not self._count:
            return 1.0
        return math.sqrt(max(self._squares / self._count - self.mean**2, 0.0))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest number; -1 and 1 before anything went in."""
        return (self.low, self.high) if self._count else (-1.0, 1.0)

    @property
    def magnitude(self) -> float:
        """Largest |number|; 1 before anything went in."""
        return max(map(abs, self.range))


@dataclass(frozen=True)
class InputRange:
    """What is drawn for one input: numbers of a mean and deviation, within a range."""

    low: float
    high: float
    mean: float
    deviation: float

    @classmethod
    def seen(cls, statistics: InputStatistics) -> InputRange:
        """The numbers that were seen, no others."""
        return cls(*statistics.range, statistics.mean, statistics.deviation)

    @classmethod
    def of(cls, spec: TensorSpec, statistics: InputStatistics, bound: int | None) -> InputRange:
        """The numbers to try.

        Args:
            spec: The input.
            statistics: Of what was seen.
            bound: The largest index that the program can look up; None: it looks up none.

        Returns:
            Up to the bound; truth values, both; what was seen, where that varies; around a
            constant, floats from 0 to its double (-1 to 1 around 0), and whole numbers with 0, 1
            and all between.
        """
        low, high = statistics.range
        if bound is not None:
            return cls.even(0, bound)
        if spec.dtype != "bool" and low < high:
            return cls.seen(statistics)
        if spec.dtype.startswith(("int", "uint", "bool")):
            return cls.even(min(low, 0), max(high, 1))
        reach = abs(low) or 1.0
        return cls.even(low - reach, low + reach)

    @classmethod
    def even(cls, low: float, high: float) -> InputRange:
        """With the mean and deviation of numbers spread evenly over a range."""
        return cls(low, high, (low + high) / 2, (high - low) / math.sqrt(12))


def unvaried_notes(
    statistics: Mapping[str, InputStatistics], feeds: Sequence[Feed]
) -> Iterator[str]:
    """Name the inputs that held one number in all that was seen and generated.

    Args:
        statistics: By input name, of what was seen.
        feeds: Generated inputs.
    """
    for name, known in statistics.items():
        values = {x for feed in feeds for x in np.unique(feed[name])[:2].tolist()}
        if known.low == known.high and len(values) == 1:
            yield f"input {name!r} was not varied: it is {values.pop()} in all that was tried"


#: A number that is added to scores so that nothing is left of them is this much below zero.
_HIDING = -1e4


def hides_places(example: np.ndarray) -> bool:
    """Whether an example is a mask by its numbers: zeros, and one large negative number."""
    values = np.unique(example) if example.dtype.kind == "f" else np.array([])
    return values.size == 2 and values[1] == 0 and bool(values[0] <= _HIDING)


@dataclass(frozen=True)
class Mask:
    """An input that says which places count, along its last axis.

    Attributes:
        shown: Its value where a place counts.
        hidden: Its value where none does: 0, or a number that is added to scores.
    """

    shown: float
    hidden: float

    @classmethod
    def of(cls, spec: TensorSpec, example: np.ndarray, statistics: InputStatistics) -> Mask | None:
        """The two values of a mask, by its example; None where it holds others (weights, pixels).

        Floats of which none is positive are added to scores: what the example adds to hide a place,
        or the least number of the dtype.
        """
        if not spec.dtype.startswith("float"):
            return cls(max(statistics.range[1], 1.0), 0.0)
        values = np.union1d(np.unique(example), statistics.range)
        if values.size > 2:
            return None
        if values.max() > 0:
            return cls(float(values.max()), 0.0) if values.min() >= 0 else None
        hides = values.min() < 0
        return cls(0.0, float(values.min() if hides else np.finfo(spec.dtype).min))

    def draw(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """A mask for a kind of input (`edgeserve.validate.inputs.generate`): at least one place."""
        size = shape[-1] if shape else 0
        places, count = np.arange(size), int(rng.integers(1, max(size, 2)))
        if name == "zeros":
            shown = places == 0
        elif name == "one-hot":
            shown = places == rng.integers(max(size, 1))
        elif name == "lowest":
            shown = places >= size - count  # padding on the left
        elif name == "extremes":
            some = (rng.random(size) < 0.5) & (places != size // 2)
            shown = some | np.isin(places, (0, size - 1))  # gaps
        elif name in ("highest", "random-0", "smallest"):
            shown = places >= 0
        else:
            shown = places < count  # padding on the right
        values = np.where(shown, self.shown, self.hidden) if size else self.shown
        return np.broadcast_to(values, shape).copy()
