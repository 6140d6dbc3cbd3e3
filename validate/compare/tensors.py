"""How far outputs are apart, each field on its own scale.

The scale of a field is the largest magnitude that the reference gives on natural inputs (the data,
or what is generated in its place), or what its values range over where that is less: a constant
that is added to an output must not hide what happens on top of it. The scale is no less than a
hundredth of the field's magnitude, near which float32 rounds, than 1e-4 of the whole output's, nor
than a floor. Generated extremes are measured on the larger of that scale and their own: neither
does a huge extreme hide what happens on ordinary inputs, nor does a tiny one inflate it. Integers
and booleans are compared as such: any difference is a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from edgeserve.data import Feed
from edgeserve.tasks.base import comparable_floats
from edgeserve.types.base import number
from edgeserve.types.reports import OutputDiff
from edgeserve.validate.compare.degenerate_outputs import DegenerateOutputCheck, FieldFault
from edgeserve.validate.compare.field_stats import OutputStats
from edgeserve.validate.compare.output_fields import WHOLE_OUTPUT, FieldLayout

_CONSTANT_TOLERANCE = 1e-6
#: What scores must range over so that quantized ones can be compared: five steps of an 8-bit scale.
_MIN_SCORE_RANGE = 0.02


def _is_number(array: np.ndarray) -> bool:
    """Whether differences are a matter of degree; an empty array has none."""
    return array.dtype.kind == "f" and array.size > 0


def absolute_difference(reference: np.ndarray, answer: np.ndarray) -> tuple[float, float, int]:
    """Largest and summed |answer - reference| where both are finite, and over how many numbers."""
    wanted, got = comparable_floats(reference), comparable_floats(answer)
    finite = np.isfinite(wanted) & np.isfinite(got)
    apart = np.abs(wanted[finite] - got[finite])
    if not apart.size:
        return 0.0, 0.0, 0
    return float(apart.max()), float(apart.sum(dtype=np.float64)), int(apart.size)


def _magnitude(array: np.ndarray) -> float:
    """Largest finite |x|; 0 where there is none."""
    values = np.abs(comparable_floats(array))
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def relative_difference(
    reference: Feed, answer: Feed, floor: float, scales: Mapping[str, float] | None = None
) -> float:
    """Largest difference over all outputs, each relative to a scale.

    Args:
        reference: Outputs by name.
        answer: The same outputs, of which infinities and NaN must not be lost or gained.
        floor: No scale counts as smaller.
        scales: The scale of each output, where this reference's own is not larger.
    """
    floors = {name: max(floor, (scales or {}).get(name, 0.0)) for name in reference}
    each = (_on_scale(reference[name], answer[name], floors[name]) for name in reference)
    return max(each, default=0.0)


def _on_scale(reference: np.ndarray, answer: np.ndarray, floor: float) -> float:
    if reference.shape != answer.shape:
        return float("inf")
    wanted, got = comparable_floats(reference), comparable_floats(answer)
    is_number = _is_number(reference)
    lost = (np.isfinite(wanted) & ~np.isfinite(got)).any()
    if lost or (is_number and _lost_infinity(reference, got)):
        return float("inf")
    scale = max(_magnitude(reference), floor) if is_number else 1.0
    return absolute_difference(reference, answer)[0] / scale


class _OutputComparison:
    """One output over many inputs."""

    def __init__(self, name: str, is_number: bool, split: FieldLayout) -> None:
        self.name = name
        self.seen = OutputStats(split, is_number)
        self.not_finite: list[str] = []
        self.not_infinite: list[str] = []  # the reference is infinite, and the answer is not so
        self.senseless: list[str] = []  # the reference gives NaN, or only infinity; and on what
        self.varies = [False, False]  # the reference, the answer
        self.first: list[np.ndarray | None] = [None, None]
        self.count = 0

    def add(
        self, thing: str, wanted: np.ndarray, got: np.ndarray, exact: np.ndarray | None = None
    ) -> None:
        """Add one input from `comparable_floats`; ``exact`` is the reference's, unchanged."""
        self.seen.add(thing, wanted, got)
        self.count += 1
        finite = np.isfinite(wanted)
        if not finite.all() and (np.isnan(wanted).any() or not finite.any()):
            what = "NaN" if np.isnan(wanted).any() else "infinite throughout"
            self.senseless.append(f"{what} on {thing}")
        if (finite & ~np.isfinite(got)).any():
            self.not_finite.append(thing)
        if exact is not None and _lost_infinity(exact, got):
            self.not_infinite.append(thing)
        for side, array in enumerate((wanted, got)):
            self._look(side, array)

    def _look(self, side: int, array: np.ndarray) -> None:
        """Note whether an array differs from the first one seen on its side."""
        first = self.first[side]
        if first is None:
            self.first[side] = np.array(array)
        elif not self.varies[side]:
            self.varies[side] = _differ(first, array)


def _lost_infinity(exact: np.ndarray, got: np.ndarray) -> bool:
    """Whether an infinity of the reference is a number, NaN or of the other sign in the answer.

    Only a true one: the largest float, which fills masks, may become another large number.
    """
    places = np.isinf(exact)
    return bool(places.any() and (got[places] != exact[places]).any())


def _differ(first: np.ndarray, array: np.ndarray) -> bool:
    if first.shape != array.shape:
        return True
    return absolute_difference(first, array)[0] > _CONSTANT_TOLERANCE * _magnitude(first)


class TensorComparison:
    """Differences of all outputs, over natural inputs and over generated ones.

    Args:
        floor: No scale counts as smaller.
        splits: The fields of each output; one that is not there is compared as a whole.
    """

    def __init__(self, floor: float, splits: Mapping[str, FieldLayout] | None = None) -> None:
        self._floor = floor
        self._splits = dict(splits or {})
        self._natural: dict[str, _OutputComparison] = {}
        self._generated: dict[str, _OutputComparison] = {}
        self._moving: dict[str, DegenerateOutputCheck] = {}

    def split(self, splits: Mapping[str, FieldLayout]) -> None:
        """Compare these outputs by their fields; before anything is added."""
        self._splits |= splits

    def add(self, thing: str, natural: bool, reference: Feed, answer: Feed) -> None:
        """Compare the outputs of one input; both sides have the same names and shapes."""
        outputs = self._natural if natural else self._generated
        for name, wanted in reference.items():
            split = self._splits.get(name, WHOLE_OUTPUT)
            if name not in outputs:
                outputs[name] = _OutputComparison(name, _is_number(wanted), split)
            pair = comparable_floats(wanted), comparable_floats(answer[name])
            outputs[name].add(thing, *pair, wanted if outputs[name].seen.is_number else None)
            moving = self._moving.setdefault(name, DegenerateOutputCheck(name, split))
            if natural and outputs[name].seen.is_number and not moving.full:
                moving.add(*pair)

    def scale(self, name: str, field: int = 0) -> float:
        """Scale of a field: from natural inputs, not below the floor; 1 for whole numbers."""
        output = self._natural.get(name)
        return self._floor if output is None else output.seen.scale(field, self._floor)

    def magnitudes(self) -> dict[str, float]:
        """The largest magnitude of each output over natural inputs; whole numbers have none."""
        return {n: o.seen.magnitude for n, o in self._natural.items() if o.seen.is_number}

    def of(self, index: int) -> float:
        """Largest relative difference of the ``index``-th natural input, over all fields."""
        return max(
            float(largest) / self.scale(name, field)
            for name, output in self._natural.items()
            for field, largest in enumerate(output.seen.largest[index])
        )

    def natural(self) -> tuple[OutputDiff, ...]:
        """Each field over the natural inputs."""
        found = []
        for name, output in self._natural.items():
            for field in range(len(output.seen.split.fields)):
                scales = [self.scale(name, field)] * len(output.seen.ids)
                diff = _summary(output, field, scales)
                found.append(_with_noise(diff, output, field, self._floor))
        return tuple(found)

    def generated(self) -> tuple[OutputDiff, ...]:
        """Each field over the other generated inputs."""
        found = []
        for name, output in self._generated.items():
            for field in range(len(output.seen.split.fields)):
                base = self.scale(name, field)
                own = [float(each[field]) for each in output.seen.magnitudes]
                scales = [max(base, each) if output.seen.is_number else 1.0 for each in own]
                found.append(_summary(output, field, scales))
        return tuple(found)

    def faults(self) -> list[FieldFault]:
        """What fields do that no file may, whatever its precision."""
        moving = (self._moving[n] for n, o in self._natural.items() if o.seen.is_number)
        return [fault for each in moving for fault in each.faults(self._floor)]

    def silent(self) -> list[OutputDiff]:
        """Fields over natural inputs that range over less than shows through 8-bit rounding."""
        pairs = [(o, i) for o in self._natural.values() for i in range(len(o.seen.split.fields))]
        return [
            diff
            for diff, (output, field) in zip(self.natural(), pairs, strict=True)
            if output.seen.is_number
            and output.seen.range(field)
            < max(self._floor, _MIN_SCORE_RANGE if diff.field == "scores" else 0.0)
        ]

    def not_finite(self) -> dict[str, list[str]]:
        """Inputs on which an answer is NaN or infinite and the reference is not, by output."""
        return self._noted(lambda output: output.not_finite)

    def not_infinite(self) -> dict[str, list[str]]:
        """Inputs on which the reference is infinite and an answer is not so, by output."""
        return self._noted(lambda output: output.not_infinite)

    def _noted(self, things_of: Callable[[_OutputComparison], list[str]]) -> dict[str, list[str]]:
        found = {n: [t for o in self._both(n) for t in things_of(o)] for n in self._natural}
        return {name: things for name, things in found.items() if things}

    def senseless(self) -> dict[str, str]:
        """What the reference itself gives, and on which natural input, by output without sense."""
        return {name: o.senseless[0] for name, o in self._natural.items() if o.senseless}

    def still(self) -> list[str]:
        """Outputs that stand still over all inputs though the reference's do not."""
        return [n for n in self._natural if self._varies(n, 0) and not self._varies(n, 1)]

    def reference_still(self) -> bool:
        """Whether no output of the reference depends on its input."""
        return not any(self._varies(name, 0) for name in self._natural)

    def server_is_constant(self, fewest: int) -> bool:
        """Whether a server's own tensors never change on natural inputs though the file's do.

        Args:
            fewest: Natural inputs from which on that is no coincidence.
        """
        floats = [o for o in self._natural.values() if o.seen.is_number]
        return (
            any(o.varies[1] for o in floats)
            and not any(o.varies[0] for o in self._natural.values())
            and min(o.count for o in floats) >= fewest
        )

    def below_floor(self) -> dict[str, float]:
        """Outputs whose largest natural magnitude is below the floor, with that magnitude."""
        return {name: value for name, value in self.magnitudes().items() if value < self._floor}

    def _both(self, name: str) -> Sequence[_OutputComparison]:
        return [side[name] for side in (self._natural, self._generated) if name in side]

    def _varies(self, name: str, side: int) -> bool:
        """Whether an output changes, also from a natural input to a generated one."""
        if any(output.varies[side] for output in self._both(name)):
            return True
        firsts = [f for output in self._both(name) if (f := output.first[side]) is not None]
        return len(firsts) > 1 and _differ(firsts[0], firsts[1])


def field_scales(split: FieldLayout, arrays: Sequence[np.ndarray], floor: float) -> list[float]:
    """The scale of each field of an output, as `Difference.scale` has it.

    Args:
        split: How the output is taken apart.
        arrays: What the reference gave for it on natural inputs, batch axis included.
        floor: No scale counts as smaller.
    """
    seen = OutputStats(split, _is_number(arrays[0]))
    for array in map(comparable_floats, arrays):
        seen.add("", array, array)
    return [seen.scale(field, floor) for field in range(len(split.fields))]


def _summary(output: _OutputComparison, field: int, scales: Sequence[float]) -> OutputDiff:
    seen = output.seen
    largest = [float(each[field]) for each in seen.largest]
    shares = [apart / scale for apart, scale in zip(largest, scales, strict=True)]
    at = int(np.argmax(shares))
    if off := output.not_finite or output.not_infinite:
        at, shares[at] = seen.ids.index(off[0]), float("inf")
    return OutputDiff(
        output=output.name,
        scale=number(scales[at]),
        max_abs=number(largest[at]),
        mean_abs=number(seen.mean(field)),
        relative=number(max(shares)),
        worst=seen.ids[at],
        field=seen.split.fields[field].word,
        part=seen.split.fields[field].part,
    )


def _with_noise(
    diff: OutputDiff, output: _OutputComparison, field: int, floor: float
) -> OutputDiff:
    """The same with what single channels and noise come to."""
    seen = output.seen
    if not seen.is_number:
        return diff
    places, shares = seen.channels(field, floor)
    snr, noisiest, least = seen.snr(field)
    kl, single = seen.divergence(field), seen.split.axis is None
    place = seen.place(field, floor)
    return msgspec.structs.replace(
        diff,
        channel=None if single else int(places[int(np.argmax(shares))]),
        channel_relative=number(0.0 if single else float(shares.max())),
        snr=number(snr),
        channel_snr=number(least),
        noisiest=None if single else noisiest,
        kl=None if kl is None else number(kl[0]),
        kl_worst=None if kl is None else number(kl[1]),
        position=None if place is None else place.at,
        position_relative=number(0.0 if place is None else place.relative),
        position_share=number(0.0 if place is None else place.share),
    )
