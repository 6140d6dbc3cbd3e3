"""How far outputs are apart, each on its own scale.

The scale of an output is the largest magnitude that the reference gives on natural inputs (the
data, or what is generated in its place), or what its values range over where that is less: a
constant that is added to an output must not hide what happens on top of it. The scale is no less
than a hundredth of the magnitude, near which float32 rounds, nor than a floor. Generated extremes
are measured on the larger of that scale and their own: neither does a huge extreme hide what
happens on ordinary inputs, nor does a tiny one inflate it. Integers and booleans are compared as
such: any difference is a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.data import Feed
from edgeserve.types.base import number
from edgeserve.types.reports import OutputDiff

__all__ = ["Difference", "difference", "relative"]

#: Magnitudes above this stand for infinity: masks are filled with the largest float, not with inf.
_HUGE = 1e30
_SAME = 1e-6


def _plain(array: np.ndarray) -> np.ndarray:
    """As floats that can be subtracted; huge numbers as infinity."""
    wide = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    values = np.asarray(array, wide)
    return np.where(np.abs(values) >= _HUGE, np.copysign(np.inf, values), values)


def _is_number(array: np.ndarray) -> bool:
    """Whether differences are a matter of degree; an empty array has none."""
    return array.dtype.kind == "f" and array.size > 0


def difference(reference: np.ndarray, answer: np.ndarray) -> tuple[float, float, int]:
    """Largest and summed |answer - reference| where both are finite, and over how many numbers."""
    wanted, got = _plain(reference), _plain(answer)
    finite = np.isfinite(wanted) & np.isfinite(got)
    apart = np.abs(wanted[finite] - got[finite])
    if not apart.size:
        return 0.0, 0.0, 0
    return float(apart.max()), float(apart.sum(dtype=np.float64)), int(apart.size)


def _magnitude(array: np.ndarray) -> float:
    """Largest finite |x|; 0 where there is none."""
    values = np.abs(_plain(array))
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def relative(reference: Feed, answer: Feed, floor: float) -> float:
    """Largest difference over all outputs, each relative to this reference's own scale."""
    return max((_on_scale(reference[name], answer[name], floor) for name in reference), default=0.0)


def _on_scale(reference: np.ndarray, answer: np.ndarray, floor: float) -> float:
    if reference.shape != answer.shape:
        return float("inf")
    wanted_finite = np.isfinite(_plain(reference))
    if (wanted_finite & ~np.isfinite(_plain(answer))).any():
        return float("inf")
    scale = max(_magnitude(reference), floor) if _is_number(reference) else 1.0
    return difference(reference, answer)[0] / scale


class _Output:
    """One output over many inputs."""

    def __init__(self, name: str, is_number: bool) -> None:
        self.name = name
        self.is_number = is_number
        self.magnitudes: list[float] = []
        self.largest: list[float] = []
        self.ids: list[str] = []
        self.sum = 0.0
        self.count = 0
        self.not_finite: list[str] = []
        self.low, self.high = np.inf, -np.inf
        self.senseless: list[str] = []  # the reference itself gives NaN, or nothing finite
        self.varies = [False, False]  # the reference, the answer
        self._first: list[np.ndarray | None] = [None, None]

    def add(self, thing: str, reference: np.ndarray, answer: np.ndarray) -> None:
        largest, total, count = difference(reference, answer)
        self.ids.append(thing)
        self.largest.append(largest)
        self.magnitudes.append(_magnitude(reference))
        self._range(reference)
        self.sum += total
        self.count += count
        if (np.isfinite(_plain(reference)) & ~np.isfinite(_plain(answer))).any():
            self.not_finite.append(thing)
        for side, array in enumerate((reference, answer)):
            self._look(side, array)

    def _range(self, reference: np.ndarray) -> None:
        """Widen the range of the reference's values by one input; note where it gives no number."""
        values = _plain(reference)
        finite = values[np.isfinite(values)]
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
        if np.isnan(values).any() or (values.size and not finite.size):
            self.senseless.append(self.ids[-1])

    @property
    def scale(self) -> float:
        """See the head of this file; without the floor."""
        largest = max(self.magnitudes, default=0.0)
        return min(largest, max(self.high - self.low, largest / 100))

    def _look(self, side: int, array: np.ndarray) -> None:
        """Note whether an array differs from the first one seen on its side."""
        first = self._first[side]
        if self.varies[side]:
            return
        if first is None:
            self._first[side] = np.array(array)
        elif first.shape != array.shape:
            self.varies[side] = True
        else:
            allowed = _SAME * _magnitude(first)
            self.varies[side] = difference(first, array)[0] > allowed


class Difference:
    """Differences of all outputs, over natural inputs and over generated ones.

    Args:
        floor: No scale counts as smaller.
    """

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._natural: dict[str, _Output] = {}
        self._generated: dict[str, _Output] = {}

    def add(self, thing: str, natural: bool, reference: Feed, answer: Feed) -> None:
        """Compare the outputs of one input; both sides have the same names and shapes."""
        outputs = self._natural if natural else self._generated
        for name, wanted in reference.items():
            if name not in outputs:
                outputs[name] = _Output(name, _is_number(wanted))
            outputs[name].add(thing, wanted, answer[name])

    def scale(self, name: str) -> float:
        """Scale of an output: from natural inputs, not below the floor; 1 for whole numbers."""
        output = self._natural.get(name)
        if output is None:
            return self._floor
        return max(self._floor, output.scale) if output.is_number else 1.0

    def of(self, index: int) -> float:
        """Largest relative difference of the ``index``-th natural input, over all outputs."""
        return max(o.largest[index] / self.scale(name) for name, o in self._natural.items())

    def natural(self) -> tuple[OutputDiff, ...]:
        """Each output over the natural inputs."""
        return tuple(
            _summary(output, [self.scale(name)] * len(output.ids))
            for name, output in self._natural.items()
        )

    def generated(self) -> tuple[OutputDiff, ...]:
        """Each output over the other generated inputs."""
        found = []
        for name, output in self._generated.items():
            base = self.scale(name)
            own = output.magnitudes if output.is_number else [1.0] * len(output.ids)
            found.append(_summary(output, [max(base, magnitude) for magnitude in own]))
        return tuple(found)

    def not_finite(self) -> dict[str, list[str]]:
        """Inputs on which an answer is NaN or infinite and the reference is not, by output."""
        return {
            name: things
            for name in self._natural
            if (things := [t for o in self._both(name) for t in o.not_finite])
        }

    def senseless(self) -> dict[str, list[str]]:
        """Natural inputs on which the reference itself is NaN or nowhere finite, by output."""
        return {name: o.senseless for name, o in self._natural.items() if o.senseless}

    def still(self) -> list[str]:
        """Outputs that stand still over all inputs though the reference's do not."""
        return [n for n in self._natural if self._varies(n, 0) and not self._varies(n, 1)]

    def reference_still(self) -> bool:
        """Whether no output of the reference depends on its input."""
        return not any(self._varies(name, 0) for name in self._natural)

    def below_floor(self) -> dict[str, float]:
        """Outputs whose largest natural magnitude is below the floor, with that magnitude."""
        largest = {n: max(o.magnitudes) for n, o in self._natural.items() if o.is_number}
        return {name: value for name, value in largest.items() if value < self._floor}

    def _both(self, name: str) -> Sequence[_Output]:
        return [side[name] for side in (self._natural, self._generated) if name in side]

    def _varies(self, name: str, side: int) -> bool:
        return any(output.varies[side] for output in self._both(name)) or self._across(name, side)

    def _across(self, name: str, side: int) -> bool:
        """Whether the first natural and the first generated array differ."""
        firsts = [f for output in self._both(name) if (f := output._first[side]) is not None]
        if len(firsts) < 2:
            return False
        if firsts[0].shape != firsts[1].shape:
            return True
        return difference(firsts[0], firsts[1])[0] > _SAME * _magnitude(firsts[0])


def _summary(output: _Output, scales: Sequence[float]) -> OutputDiff:
    shares = [largest / scale for largest, scale in zip(output.largest, scales, strict=True)]
    at = int(np.argmax(shares))
    if output.not_finite:
        at, shares[at] = output.ids.index(output.not_finite[0]), float("inf")
    return OutputDiff(
        output=output.name,
        scale=number(scales[at]),
        max_abs=number(output.largest[at]),
        mean_abs=number(output.sum / output.count if output.count else 0.0),
        relative=number(max(shares)),
        worst=output.ids[at],
    )
