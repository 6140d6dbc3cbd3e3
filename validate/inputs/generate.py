"""Synthetic inputs, natural ones and extremes: images, audio, texts, and tensors at the edges.

Natural inputs are like those that the model is made for: where there is no data they set the
scale of each output. The others only show what happens at the edges, which real inputs seldom
do: saturation at the largest values, dead channels at zero, masks, repeated rows. Tensors are
made at the statistics of the data, from ordinary to extreme. No artifact passes because of a
flip rate on them; see ``docs/explanation/verdicts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import DataError
from edgeserve.processing import Processor
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.inference import prepare_feed
from edgeserve.validate.inputs.media import audio_edge_cases as odd_sounds
from edgeserve.validate.inputs.media import (
    audio_range,
    paraphrases,
    prime_between,
    synthetic_audio,
    synthetic_image,
    text_edge_cases,
    text_of_length,
)

#: How many random inputs there are: the natural ones where a model brings no medium.
RANDOM_INPUTS = 4

#: Free dimensions are tried up to this size, and until an input has so many numbers.
_MAX_DIM = 1024
_MAX_NUMBERS = 1 << 18

_Shape = tuple[int, ...]
_Make = Callable[["InputStatistics", _Shape, np.random.Generator], np.ndarray]


class InputStatistics:
    """Running mean, deviation and range of one input, over the finite numbers that went in."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self._count = 0
        self._sum = self._squares = 0.0

    def add(self, array: np.ndarray) -> None:
        """Take an array in."""
        values = np.asarray(array, np.float64).ravel()
        values = values[np.isfinite(values)]
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


def _constant(pick: Callable[[InputStatistics], float]) -> _Make:
    return lambda stats, shape, rng: np.full(shape, pick(stats))


def _random(stats: InputStatistics, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(stats.mean, stats.deviation, shape)


def _extremes(stats: InputStatistics, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(stats.range, shape)


def _one_hot(stats: InputStatistics, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    array = np.zeros(shape)
    if array.size:
        array.flat[rng.integers(array.size)] = stats.range[1]
    return array


def _repeated(stats: InputStatistics, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    """The same row again and again: along the last axis but one, or one number throughout."""
    row = (*shape[:-2], 1, *shape[-1:]) if len(shape) > 1 else (1,) * len(shape)
    return np.broadcast_to(_random(stats, row, rng), shape).copy()


_KINDS: dict[str, _Make] = {
    "zeros": _constant(lambda stats: 0.0),
    "lowest": _constant(lambda stats: stats.range[0]),
    "highest": _constant(lambda stats: stats.range[1]),
    "extremes": _extremes,
    "one-hot": _one_hot,
    "repeated-rows": _repeated,
    **{f"random-{i}": _random for i in range(RANDOM_INPUTS)},
}


@dataclass(frozen=True)
class TensorInputs:
    """Makes feeds of a model.

    Numbers stay within the range of ``statistics``, so that ids remain ids.

    Attributes:
        signature: The model's.
        example: Its example inputs, for the sizes of dynamic dimensions.
        statistics: By input name.
        seed: The same seed gives the same feeds.
        masks: Inputs that say which positions count: never all zero, which many models answer
            with NaN, but ones and then zeros, as padding leaves them.
    """

    signature: Signature
    example: Mapping[str, np.ndarray]
    statistics: Mapping[str, InputStatistics]
    seed: int
    masks: Collection[str] = ()

    def edges(self) -> Iterator[tuple[str, Feed]]:
        """Feeds by name; each has the example's shapes, with a batch of 1 where it is free."""
        for number, (name, make) in enumerate(_KINDS.items()):
            yield name, self._feed(make, number, {})

    def lengths(self) -> Iterator[tuple[str, Feed]]:
        """Random feeds with the free dimensions (the batch left out) at their ends, and at a prime.

        Sizes end where inputs become huge.
        """
        ends = {dim: ends for dim, ends in self.signature.dims.items() if ends[0] < ends[1]}
        free = {d: (max(1, low), high) for d, (low, high) in ends.items()}
        free.pop(self.signature.batch_dim or "", None)
        if not free:
            return
        top = self._largest(free)
        chosen = {
            "smallest": {dim: low for dim, (low, _) in free.items()},
            "prime": {dim: prime_between(low, top[dim]) or low for dim, (low, _) in free.items()},
            "largest": top,
        }
        for number, (word, dims) in enumerate(chosen.items(), len(_KINDS)):
            sizes = ", ".join(f"{dim} {size}" for dim, size in dims.items())
            yield f"{word} ({sizes})", self._feed(_random, number, dims)

    def _largest(self, free: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """The sizes up to which dimensions may grow before an input holds too many numbers."""
        cap = _MAX_DIM
        while True:
            dims = {dim: max(low, min(high, cap)) for dim, (low, high) in free.items()}
            shapes = [self._shape(spec, dims) for spec in self.signature.inputs]
            if cap <= 1 or all(math.prod(shape) <= _MAX_NUMBERS for shape in shapes):
                return dims
            cap = cap * 7 // 8

    def _feed(self, make: _Make, number: int, dims: Mapping[str, int]) -> Feed:
        rng = np.random.default_rng((self.seed, number))
        feed = {}
        for spec in self.signature.inputs:
            statistics = self.statistics[spec.name]
            fitted = _fitted(make(statistics, self._shape(spec, dims), rng), spec, statistics)
            feed[spec.name] = _as_mask(fitted) if spec.name in self.masks else fitted
        return feed

    def _shape(self, spec: TensorSpec, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The example's; a free batch axis becomes as small as it may, others as ``dims`` say."""
        sizes, batch = dict(dims), self.signature.batch_dim
        if batch is not None:
            sizes[batch] = max(1, self.signature.dims[batch][0])
        shape = self.example[spec.name].shape
        return tuple(sizes.get(str(dim), size) for dim, size in zip(spec.shape, shape, strict=True))


def _as_mask(array: np.ndarray) -> np.ndarray:
    """As many ones as there are, first; at least one."""
    if not array.ndim or not array.shape[-1]:
        return array
    ones = np.maximum((array != 0).sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.arange(array.shape[-1]) < ones, array.dtype)


def _fitted(array: np.ndarray, spec: TensorSpec, statistics: InputStatistics) -> np.ndarray:
    """Within the range seen, in the input's dtype."""
    inside = np.clip(array, *statistics.range)
    if spec.dtype.startswith(("int", "uint", "bool")):
        inside = np.rint(inside)
    return np.asarray(inside, spec.dtype)


#: Drawn pictures that stand in for photos, or made sounds: 12 cost little and show several classes.
MEDIA_INPUTS = 12
#: Texts are made up to so many tokens: attention costs their square.
_MAX_TOKENS = 1024


@dataclass(frozen=True)
class GeneratedInput:
    """A generated input.

    Attributes:
        name: What to call it.
        natural: See the head of this file.
        raw: Its raw form, which a server can be asked about; None: it has none, or is too odd.
        feed: The same, prepared.
        of_length: It is there for its length, which its name says.
        edge: It lies on a constant of the program (`edgeserve.validate.inputs.edges`).
    """

    name: str
    natural: bool
    raw: RawInput | None
    feed: Feed
    of_length: bool = False
    edge: bool = False


def mask_inputs(exported: Exported) -> frozenset[str]:
    """Inputs that say which positions count: by the processing, else by their names."""
    padding = exported.processing.padding
    named = {s.name for s in exported.signature.inputs if "mask" in s.name.lower()}
    return frozenset({n for n, step in padding.items() if step.part == "attention_mask"} | named)


def media_inputs(exported: Exported, processor: Processor, seed: int) -> Iterator[GeneratedInput]:
    """Natural pictures, sounds or texts, and the odd ones; nothing for a model of tensors."""
    if processor.medium == "image":
        for i in range(MEDIA_INPUTS):
            yield _natural_input(processor, f"picture-{i}", synthetic_image(i, seed))
    elif processor.medium == "text":
        yield from _text_inputs(exported, processor)
    elif processor.medium == "audio":
        of = audio_range(exported)
        for i in range(MEDIA_INPUTS):
            yield _natural_input(processor, f"sound-{i}", synthetic_audio(i, seed, of))
        for name, raw, sized in odd_sounds(of):
            feed = prepare_feed(processor, raw, name)
            yield GeneratedInput(name, False, None, feed, of_length=sized)


def _natural_input(processor: Processor, name: str, raw: RawInput) -> GeneratedInput:
    return GeneratedInput(name, True, raw, prepare_feed(processor, raw, name))


def _text_inputs(exported: Exported, processor: Processor) -> Iterator[GeneratedInput]:
    for i, both in enumerate(paraphrases()[::2]):
        for letter, text in zip("ab", both, strict=True):
            yield _natural_input(processor, f"text-{i}{letter}", text)
    padding = exported.processing.padding.values()
    longest = min(max(step.max_length for step in padding), _MAX_TOKENS)
    for name, text in _texts_by_length(exported, processor, longest):
        yield replace(_natural_input(processor, name, text), of_length=True)
    for name, text in text_edge_cases(longest):
        try:
            yield GeneratedInput(name, False, None, prepare_feed(processor, text, name))
        except DataError:  # a tokenizer that refuses such a text refuses it everywhere
            continue


def _texts_by_length(
    exported: Exported, processor: Processor, longest: int
) -> Iterator[tuple[str, str]]:
    """Texts of the smallest and largest number of tokens, and of a prime between."""
    ids = next(iter(exported.processing.padding))

    def count(text: str) -> int:
        return int(processor.prepare(text)[ids].size)

    least = count("a")
    between = prime_between(least, longest)
    wanted = {"the fewest": least, "a prime": between, "the most": longest}
    for word, size in wanted.items():
        text = text_of_length(size, count) if size else None
        if text is not None:
            yield f"{size} tokens, {word}", text


def edge_inputs(
    exported: Exported,
    processor: Processor,
    example: Mapping[str, np.ndarray],
    statistics: Mapping[str, InputStatistics],
    seed: int,
) -> Iterator[GeneratedInput]:
    """The example input, and tensors at the statistics of what has been seen.

    For a model of tensors these are all there is, and the random ones of them are natural.
    """
    raw = processor.medium == "tensors"
    known = {spec.name: example[spec.name] for spec in exported.signature.inputs}
    yield GeneratedInput("example", raw, known if raw else None, known)
    made = TensorInputs(exported.signature, example, statistics, seed, mask_inputs(exported))
    for name, feed in made.edges():
        natural = raw and name.startswith("random-")
        yield GeneratedInput(name, natural, feed if natural else None, feed)
    if raw:
        for name, feed in made.lengths():
            yield GeneratedInput(name, False, None, feed, of_length=True)
