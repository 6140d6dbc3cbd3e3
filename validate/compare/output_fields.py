"""Which parts of an output mean one thing: its fields, declared or inferred from what it holds.

A detector's output may hold boxes in hundreds of pixels and scores below one. On one common
scale a file whose scores are all zero looks perfect, so each field is compared on a scale of its
own.

An output step or the source's factory may name fields. Where nothing is declared, the
reference's first answers are looked at: the largest magnitude of each channel, along each axis
of fixed size. Sorted, they are cut where one is `LEVEL_RATIO` times the one before; channels of
one level are a field, wherever they stand. Channels that all hold shares (0 to 1) stay together:
a class that no input shows has scores a thousand times smaller than the others', and is a score
all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path

import numpy as np

from edgeserve.data import Feed
from edgeserve.types.source import Exported
from edgeserve.types.steps import OutputStep, Slice, SlicedOutput
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.reference_store import SyntheticTensors, TensorReader
from edgeserve.validate.requests import Answers

#: How much larger the next field's channels must be. Channels of one field are alike within less;
#: at a ratio of eight, one scale for both leaves the smaller field 32 of 256 steps.
LEVEL_RATIO = 8.0

#: Magnitudes below this share of the largest count as zero: zeros belong to any field.
_ZERO_SHARE = 1e-9

#: Axes longer than this hold positions, not channels.
_MAX_CHANNELS = 1 << 16

#: More levels than this are a spread, not fields.
_MAX_LEVELS = 6

#: How many of the reference's answers are looked at.
SAMPLED_ANSWERS = 16

_SCORE_TOLERANCE = 1e-6

#: What an undeclared output is called, by a part of its name.
_BY_NAME = {"box": "boxes", "score": "scores", "prob": "scores"}
_BY_NAME |= {"logit": "logits", "mask": "mask", "embed": "embedding"}


@dataclass(frozen=True)
class OutputField:
    """A part of an output.

    Attributes:
        word: "boxes", "scores", "classes", "mask", "logits", "embedding" or "values".
        channels: Indices along the split's axis, rising; None: the whole output.
        softmax: A softmax over the channels makes probabilities of them.
    """

    word: str
    channels: tuple[int, ...] | None = None
    softmax: bool = False

    def of(self, values: np.ndarray) -> np.ndarray:
        """Its channels, which lie along the first axis of ``values``."""
        return values if self.channels is None else values[list(self.channels)]

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
        ranges = [f"{low}-{high}" if high > low else str(low) for low, high in ends]
        shown = ", ".join(ranges[:3]) + (", ..." if len(ranges) > 3 else "")
        return f"channel{'s' if len(self.channels) > 1 else ''} {shown}"


@dataclass(frozen=True)
class FieldLayout:
    """How an output is taken apart.

    Attributes:
        axis: Of its channels; None where it has none.
        fields: Each channel belongs to one.
    """

    axis: int | None
    fields: tuple[OutputField, ...]


def describe_field(word: str, output: str, part: str) -> str:
    """A field of an output in words ("scores field of output 'y' (channels 4-83)")."""
    part = f" ({part})" if part else ""
    return f"{f'{word} field of ' if word not in ('', 'values') else ''}output {output!r}{part}"


#: An output of which nothing is known.
WHOLE_OUTPUT = FieldLayout(None, (OutputField("values"),))


def channel_axes(spec: TensorSpec) -> dict[int, int]:
    """Axes that may hold channels, with their sizes: fixed ones behind the batch."""
    pairs = enumerate(spec.shape)
    return {a: d for a, d in pairs if a and isinstance(d, int) and 1 < d <= _MAX_CHANNELS}


def shortest_axis(axes: Mapping[int, int]) -> int | None:
    """The shortest of these axes: the likeliest to hold channels."""
    return min(axes, key=lambda axis: axes[axis], default=None)


def infer_layout(spec: TensorSpec, arrays: Sequence[np.ndarray]) -> FieldLayout:
    """The fields of an output of which nothing is declared.

    Args:
        spec: Its name and shape.
        arrays: What the reference gave for it, each with batch axis.
    """
    sizes = channel_axes(spec).items()
    axes = {a: n for a, n in sizes if all(array.shape[a] == n for array in arrays)}
    if not arrays or arrays[0].dtype.kind != "f" or not axes:
        return FieldLayout(shortest_axis(axes), (OutputField(_by_name(spec.name) or "values"),))
    found = {axis: _ChannelRanges.along(axis, arrays) for axis in axes}
    cut = {axis: each.levels() for axis, each in found.items()}
    apart = [axis for axis in axes if len(set(cut[axis])) > 1]
    if not apart:
        axis = shortest_axis(axes)
        assert axis is not None
        return FieldLayout(axis, (OutputField(_by_name(spec.name) or found[axis].word()),))
    axis = min(apart, key=lambda axis: axes[axis])
    return FieldLayout(axis, _fields_by_level(found[axis], cut[axis]))


def _by_name(name: str) -> str:
    return next((word for part, word in _BY_NAME.items() if part in name.lower()), "")


@dataclass(frozen=True)
class _ChannelRanges:
    """What each channel ranges over, float64 [channels]."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def along(cls, axis: int, arrays: Sequence[np.ndarray]) -> _ChannelRanges:
        low, high = [], []
        for array in arrays:
            others = tuple(a for a in range(array.ndim) if a != axis)
            known = np.isfinite(array) & (np.abs(array) < 1e30)
            low.append(array.min(axis=others, initial=np.inf, where=known))
            high.append(array.max(axis=others, initial=-np.inf, where=known))
        return cls(np.min(low, axis=0).astype(np.float64), np.max(high, axis=0).astype(np.float64))

    def levels(self) -> np.ndarray:
        magnitudes = np.maximum(np.abs(self.low), np.abs(self.high))
        shares = (self.low >= -_SCORE_TOLERANCE) & (self.high <= 1 + _SCORE_TOLERANCE)
        return levels(np.where(np.isfinite(magnitudes), magnitudes, 0.0), shares)

    def word(self, channels: np.ndarray | None = None) -> str:
        some = slice(None) if channels is None else channels
        low, high = self.low[some], self.high[some]
        within = low.min() >= -_SCORE_TOLERANCE and high.max() <= 1 + _SCORE_TOLERANCE
        return "scores" if within and (low.size != 4 or channels is not None) else "values"


def levels(magnitudes: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    """Which level each channel belongs to, int [channels], 0 the smallest; all 0 for one field.

    Args:
        magnitudes: Largest absolute value of each channel.
        shares: Channels whose values all lie between 0 and 1: they stay together.
    """
    whole = float(magnitudes.max(initial=0.0))
    known = magnitudes > _ZERO_SHARE * whole
    if shares is not None and (shares & known).any():  # all get the magnitude of the largest
        magnitudes = np.where(shares & known, magnitudes[shares & known].max(), magnitudes)
    rising = np.unique(magnitudes[known])
    cuts = [low for low, high in pairwise(rising) if high >= LEVEL_RATIO * low]
    if not cuts or len(cuts) >= _MAX_LEVELS:
        return np.zeros(magnitudes.shape, int)
    found = np.searchsorted(np.asarray(cuts), magnitudes, side="left")
    return _assign_zero_channels(found, known)


def _assign_zero_channels(found: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Channels that are all zero take the level of the known one nearest to them."""
    places = np.flatnonzero(known)
    nearest = np.abs(np.arange(found.size)[:, None] - places[None, :]).argmin(axis=1)
    return np.asarray(np.where(known, found, found[places[nearest]]))


def _fields_by_level(ranges: _ChannelRanges, cut: np.ndarray) -> tuple[OutputField, ...]:
    """One field a level, in the order of their first channels."""
    fields = []
    for level in dict.fromkeys(int(each) for each in cut):
        channels = np.flatnonzero(cut == level)
        word = ranges.word(channels)
        word = "boxes" if word == "values" and channels.size == 4 else word
        fields.append(OutputField(word, tuple(int(channel) for channel in channels)))
    return tuple(fields)


def declared_layouts(exported: Exported) -> dict[str, FieldLayout]:
    """Outputs whose fields are known without looking at a number, by name; steps come first."""
    specs = {spec.name: spec for spec in exported.signature.outputs}
    found: dict[str, FieldLayout] = {}
    for step in exported.processing.outputs:
        for name, split in _step_layouts(step, specs):
            found.setdefault(name, split)
    for name, word in exported.fields.items():
        if name in specs:
            axis = shortest_axis(channel_axes(specs[name]))
            found.setdefault(name, FieldLayout(axis, (OutputField(word),)))
    return found


def _step_layouts(
    step: OutputStep, specs: dict[str, TensorSpec]
) -> Iterator[tuple[str, FieldLayout]]:
    """What a step says of the outputs that it reads."""
    if isinstance(step, SlicedOutput):
        yield from _sliced_layouts(step, specs)
    elif step.output in specs:
        spec = specs[step.output]
        kind = step.field(not spec.dtype.startswith(("float", "bfloat")))
        field = OutputField(kind.word, softmax=kind.softmax)
        yield step.output, FieldLayout(_channel_axis(spec, kind.axis), (field,))


def _channel_axis(spec: TensorSpec, axis: int) -> int | None:
    """The axis with the batch counted; None where it holds no channels."""
    place = axis + 1 if axis >= 0 else len(spec.shape) + axis
    return place if place in channel_axes(spec) else shortest_axis(channel_axes(spec))


def _sliced_layouts(
    step: SlicedOutput, specs: dict[str, TensorSpec]
) -> Iterator[tuple[str, FieldLayout]]:
    """Boxes, scores and so on, each out of its output."""
    for name in step.outputs:
        slices = {word: each for word, each in step.slices.items() if each.output == name}
        spec = specs.get(name)
        if spec is None:
            continue
        places = {_channel_axis(spec, each.axis) for each in slices.values()}
        axis = places.pop() if len(places) == 1 else None
        size = spec.shape[axis] if axis is not None else None
        if axis is None or not isinstance(size, int):
            word = next(iter(slices))
            yield name, FieldLayout(axis, (_sliced_field(word, step, None),))
        else:
            yield name, FieldLayout(axis, tuple(_slice_fields(step, slices, size)))


def _slice_fields(step: SlicedOutput, slices: dict[str, Slice], size: int) -> Iterator[OutputField]:
    """One field a slice, and one of the channels that no slice takes."""
    taken: set[int] = set()
    for word, each in slices.items():
        channels = tuple(c for c in range(size)[each.start : each.stop] if c not in taken)
        taken.update(channels)
        if channels:
            yield _sliced_field(word, step, channels if len(channels) < size else None)
    if rest := tuple(c for c in range(size) if c not in taken):
        yield OutputField("values", rest)


def _sliced_field(word: str, step: SlicedOutput, channels: tuple[int, ...] | None) -> OutputField:
    kind = step.slice_field(word)
    return OutputField(kind.word, channels, kind.softmax)


def natural_outputs(
    answers: Answers,
    folder: Path,
    fillers: Sequence[SyntheticTensors],
    signature: Signature,
    count: int,
) -> list[Feed]:
    """Outputs of at most ``count`` natural inputs: the data, or without data what stands in for it.

    Args:
        answers: What the reference answered.
        folder: Where its tensors lie.
        fillers: Those of the generated inputs.
        signature: The source's.
        count: How many.
    """
    if answers.samples and answers.chunks:
        reader = TensorReader(folder, answers.chunks[:1], signature)
        return list(islice(iter(reader.next, None), count))
    pairs = zip(answers.fillers, fillers, strict=True)
    return [each.outputs for filler, each in pairs if filler.natural][:count]


def field_layouts(exported: Exported, outputs: Sequence[Feed]) -> dict[str, FieldLayout]:
    """How each output is taken apart.

    Args:
        exported: What is declared.
        outputs: The reference's answers to a few natural inputs, batch axis included.
    """
    known = declared_layouts(exported)
    return {
        spec.name: known.get(spec.name) or infer_layout(spec, [feed[spec.name] for feed in outputs])
        for spec in exported.signature.outputs
    }
