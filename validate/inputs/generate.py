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
from dataclasses import dataclass, field, replace

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
from edgeserve.validate.inputs.ranges import InputRange, InputStatistics, Mask, hides_places

#: How many random inputs there are: the natural ones where a model brings no medium.
RANDOM_INPUTS = 4

#: Free dimensions are tried up to this size, and until an input has so many numbers.
_MAX_DIM = 1024
_MAX_NUMBERS = 1 << 18

_Shape = tuple[int, ...]
_Make = Callable[[InputRange, _Shape, np.random.Generator], np.ndarray]


def _constant(pick: Callable[[InputRange], float]) -> _Make:
    return lambda seen, shape, rng: np.full(shape, pick(seen))


def _random(seen: InputRange, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(seen.mean, seen.deviation, shape)


def _extremes(seen: InputRange, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    return rng.choice((seen.low, seen.high), shape)


def _one_hot(seen: InputRange, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    array = np.zeros(shape)
    if array.size:
        array.flat[rng.integers(array.size)] = seen.high
    return array


def _repeated(seen: InputRange, shape: _Shape, rng: np.random.Generator) -> np.ndarray:
    """The same row again and again: along the last axis but one, or one number throughout."""
    row = (*shape[:-2], 1, *shape[-1:]) if len(shape) > 1 else (1,) * len(shape)
    return np.broadcast_to(_random(seen, row, rng), shape).copy()


_KINDS: dict[str, _Make] = {
    "zeros": _constant(lambda seen: 0.0),
    "lowest": _constant(lambda seen: seen.low),
    "highest": _constant(lambda seen: seen.high),
    "extremes": _extremes,
    "one-hot": _one_hot,
    "repeated-rows": _repeated,
    **{f"random-{i}": _random for i in range(RANDOM_INPUTS)},
}


@dataclass(frozen=True)
class TensorInputs:
    """Makes feeds of a model.

    Attributes:
        signature: The model's.
        example: Its example inputs, for the sizes of dynamic dimensions.
        statistics: By input name.
        seed: The same seed gives the same feeds.
        masks: Inputs that say which positions count: never all hidden, which many models answer
            with NaN.
        bounds: The largest index that the program can look up, by input name.
        widened: Inputs vary beyond what was seen (`InputRange.of`), and masks hide places.
    """

    signature: Signature
    example: Mapping[str, np.ndarray]
    statistics: Mapping[str, InputStatistics]
    seed: int
    masks: Collection[str] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    widened: bool = True

    def edges(self) -> Iterator[tuple[str, Feed]]:
        """Feeds by name; each has the example's shapes, with a batch of 1 where it is free."""
        for number, (name, make) in enumerate(_KINDS.items()):
            yield name, self._feed(name, make, number, {})

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
            yield f"{word} ({sizes})", self._feed(word, _random, number, dims)

    def _largest(self, free: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """The sizes up to which dimensions may grow before an input holds too many numbers."""
        cap = _MAX_DIM
        while True:
            dims = {dim: max(low, min(high, cap)) for dim, (low, high) in free.items()}
            shapes = [self._shape(spec, dims) for spec in self.signature.inputs]
            if cap <= 1 or all(math.prod(shape) <= _MAX_NUMBERS for shape in shapes):
                return dims
            cap = cap * 7 // 8

    def _feed(self, kind: str, make: _Make, number: int, dims: Mapping[str, int]) -> Feed:
        rng = np.random.default_rng((self.seed, number))
        feed = {}
        for spec in self.signature.inputs:
            shape, seen = self._shape(spec, dims), self._range(spec)
            drawn = make(seen, shape, rng)
            if (mask := self._mask(spec)) is not None:
                drawn = mask.draw(kind if self.widened else "highest", shape, rng)
                feed[spec.name] = np.asarray(drawn, spec.dtype)
            else:
                feed[spec.name] = _fitted(drawn, spec, seen)
        return feed

    def _range(self, spec: TensorSpec) -> InputRange:
        statistics = self.statistics[spec.name]
        bound = self.bounds.get(spec.name)
        widened = self.widened and spec.dtype != "string"
        return InputRange.of(spec, statistics, bound) if widened else InputRange.seen(statistics)

    def _mask(self, spec: TensorSpec) -> Mask | None:
        if spec.name not in self.masks:
            return None
        return Mask.of(spec, self.example[spec.name], self.statistics[spec.name])

    def _shape(self, spec: TensorSpec, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The example's; a free batch axis becomes as small as it may, others as ``dims`` say."""
        sizes, batch = dict(dims), self.signature.batch_dim
        if batch is not None:
            sizes[batch] = max(1, self.signature.dims[batch][0])
        shape = self.example[spec.name].shape
        return tuple(sizes.get(str(dim), size) for dim, size in zip(spec.shape, shape, strict=True))


def _fitted(array: np.ndarray, spec: TensorSpec, seen: InputRange) -> np.ndarray:
    """Within the range, in the input's dtype."""
    inside = np.clip(array, seen.low, seen.high)
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
        seen: The same with no input beyond what was seen, for a program that fails on ``feed``.
        edge: It lies on a constant of the program (`edgeserve.validate.inputs.edges`).
    """

    name: str
    natural: bool
    raw: RawInput | None
    feed: Feed
    of_length: bool = False
    seen: Feed | None = None
    edge: bool = False

    def within_seen(self) -> GeneratedInput | None:
        """The input without what was widened; None where nothing was."""
        seen = self.seen
        if seen is None or not changed_inputs(seen, self.feed):
            return None
        return replace(self, raw=seen if self.raw is self.feed else None, feed=seen, seen=None)


def changed_inputs(one: Feed, other: Feed) -> list[str]:
    """Names of the inputs that two feeds hold other numbers for."""
    return [name for name, array in one.items() if not np.array_equal(array, other[name])]


def mask_inputs(exported: Exported, example: Mapping[str, np.ndarray]) -> frozenset[str]:
    """Inputs that say which positions count: by the processing, their names or their numbers."""
    padding = exported.processing.padding
    told = {name for name, step in padding.items() if step.part == "attention_mask"}
    inputs = exported.signature.inputs
    masks = {s.name for s in inputs if "mask" in s.name.lower() or hides_places(example[s.name])}
    return frozenset(told | masks)


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
    bounds: Mapping[str, int],
    masks: Collection[str],
) -> Iterator[GeneratedInput]:
    """The example input, and tensors at the statistics of what has been seen.

    For a model of tensors these are all there is, and the random ones of them are natural.

    Args:
        exported: The model.
        processor: Its processing.
        example: Its example inputs.
        statistics: By input name, of what has been seen.
        seed: The same seed gives the same inputs.
        bounds: See `TensorInputs`.
        masks: Likewise.
    """
    raw = processor.medium == "tensors"
    known = {spec.name: example[spec.name] for spec in exported.signature.inputs}
    yield GeneratedInput("example", raw, known if raw else None, known)
    made = TensorInputs(exported.signature, example, statistics, seed, masks, bounds)
    narrow = replace(made, widened=False)
    for (name, feed), (_, seen) in zip(made.edges(), narrow.edges(), strict=True):
        natural = raw and name.startswith("random-")
        yield GeneratedInput(name, natural, feed if natural else None, feed, seen=seen)
    if raw:
        for (name, feed), (_, seen) in zip(made.lengths(), narrow.lengths(), strict=True):
            yield GeneratedInput(name, False, None, feed, of_length=True, seen=seen)
