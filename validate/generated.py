"""What the gate asks without being given it: pictures, sounds, texts, and tensors at the edges.

Natural inputs are like those that the model is made for: where there is no data they set the scale
of each output. The others only show what happens at the edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgeserve.data import Feed
from edgeserve.data.reading import RawInput
from edgeserve.errors import DataError
from edgeserve.processing import Processor
from edgeserve.types.source import Exported
from edgeserve.validate.feeds import feed_of
from edgeserve.validate.fillers import Statistics, fillers, lengths
from edgeserve.validate.pictures import picture
from edgeserve.validate.sounds import edges as odd_sounds
from edgeserve.validate.sounds import range_of, sound
from edgeserve.validate.texts import edges, of_length, pairs, prime_between

__all__ = ["PICTURES", "Generated", "edge_inputs", "masks_of", "media"]

#: Drawn pictures that stand in for photos, or made sounds: 12 cost little and show several classes.
PICTURES = 12
#: Texts are made up to so many tokens: attention costs their square.
_LONGEST = 1024


@dataclass(frozen=True)
class Generated:
    """A generated input.

    Attributes:
        name: What to call it.
        natural: See the head of this file.
        raw: Its raw form, which a server can be asked about; None: it has none, or is too odd.
        feed: The same, prepared.
        of_length: It is there for its length, which its name says.
    """

    name: str
    natural: bool
    raw: RawInput | None
    feed: Feed
    of_length: bool = False


def masks_of(exported: Exported) -> frozenset[str]:
    """Inputs that say which positions count: by the processing, else by their names."""
    padding = exported.processing.padding
    named = {s.name for s in exported.signature.inputs if "mask" in s.name.lower()}
    return frozenset({n for n, step in padding.items() if step.part == "attention_mask"} | named)


def media(exported: Exported, processor: Processor, seed: int) -> Iterator[Generated]:
    """Natural pictures, sounds or texts, and the odd ones; nothing for a model of tensors."""
    if processor.medium == "image":
        for i in range(PICTURES):
            raw = picture(i, seed)
            name = f"picture-{i}"
            yield Generated(name, True, raw, feed_of(processor, raw, name))
    elif processor.medium == "text":
        yield from _texts(exported, processor)
    elif processor.medium == "audio":
        yield from _sounds(exported, processor, seed)


def _sounds(exported: Exported, processor: Processor, seed: int) -> Iterator[Generated]:
    of = range_of(exported)
    for i in range(PICTURES):
        raw = sound(i, seed, of)
        yield Generated(f"sound-{i}", True, raw, feed_of(processor, raw, f"sound-{i}"))
    for name, raw, sized in odd_sounds(of):
        yield Generated(name, False, None, feed_of(processor, raw, name), of_length=sized)


def _texts(exported: Exported, processor: Processor) -> Iterator[Generated]:
    for i, both in enumerate(pairs()[::2]):
        for letter, text in zip("ab", both, strict=True):
            yield _text(processor, f"text-{i}{letter}", text, natural=True)
    longest = min(_longest(exported), _LONGEST)
    for name, text in _lengths(exported, processor, longest):
        yield replace(_text(processor, name, text, natural=True), of_length=True)
    for name, text in edges(longest):
        try:
            yield _text(processor, name, text, natural=False)
        except DataError:  # a tokenizer that refuses such a text refuses it everywhere
            continue


def _text(processor: Processor, name: str, text: str, *, natural: bool) -> Generated:
    return Generated(name, natural, text if natural else None, feed_of(processor, text, name))


def _longest(exported: Exported) -> int:
    return max(step.max_length for step in exported.processing.padding.values())


def _lengths(exported: Exported, processor: Processor, longest: int) -> Iterator[tuple[str, str]]:
    """Texts of the smallest and largest number of tokens, and of a prime between."""
    ids = next(iter(exported.processing.padding))

    def count(text: str) -> int:
        return int(processor.prepare(text)[ids].size)

    least = count("a")
    between = prime_between(least, longest)
    wanted = {"the fewest": least, "a prime": between, "the most": longest}
    for word, size in wanted.items():
        text = of_length(size, count) if size else None
        if text is not None:
            yield f"{size} tokens, {word}", text


def edge_inputs(
    exported: Exported,
    processor: Processor,
    example: Mapping[str, np.ndarray],
    statistics: Mapping[str, Statistics],
    seed: int,
) -> Iterator[Generated]:
    """The example input, and tensors at the statistics of what has been seen.

    For a model of tensors these are all there is, and the random ones of them are natural.
    """
    raw = processor.medium == "tensors"
    known = {spec.name: example[spec.name] for spec in exported.signature.inputs}
    yield Generated("example", raw, known if raw else None, known)
    asked = (exported.signature, example, statistics, seed, masks_of(exported))
    for name, feed in fillers(*asked):
        natural = raw and name.startswith("random-")
        yield Generated(name, natural, feed if natural else None, feed)
    if raw:
        for name, feed in lengths(*asked):
            yield Generated(name, False, None, feed, of_length=True)
