"""`Engine`: a loaded session between the processing before it and after it, one input or many.

The session runs behind an `Adapter`: whatever sizes and integer types its file is fixed to, it is
fed and answers as the source's signature says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from edgeserve.backends import Session
from edgeserve.backends.adapter import Adapter
from edgeserve.errors import EdgeError, revive
from edgeserve.processing import Processor, Raw
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature

__all__ = ["Arrays", "Engine", "batch_range"]

Arrays = dict[str, np.ndarray]
X = TypeVar("X")
Y = TypeVar("Y")

#: No batch is made larger than this: on processors the gain ends at 4, and memory grows with it.
_CHUNK = 8


def batch_range(signature: Signature) -> tuple[int, int]:
    """Smallest and largest batch of one run; (1, 1) where the axes say nothing of a batch."""
    if name := signature.batch_dim:
        low, high = signature.dims[name]
        return max(1, low), max(1, high)
    first = {spec.shape[0] if spec.shape else 1 for spec in (*signature.inputs, *signature.outputs)}
    only = first.pop() if len(first) == 1 else 1
    return (only, only) if isinstance(only, int) and only > 0 else (1, 1)


class Engine:
    """Answers raw inputs and named tensors; safe to use from several threads at once.

    Attributes:
        check: Named tensors of a caller made into a feed of the signature's dtypes (`InputError`).
        run: One run of the model, batched feed to batched outputs, both of the source's signature.
        finish: Batched outputs, and the feed that they are of, to one record a sample.
        largest: Samples that go through the model together at most.
    """

    def __init__(self, session: Session, processor: Processor, signature: Signature) -> None:
        self.session = session
        self.check, self.finish = processor.check_feed, processor.finish
        self.run = Adapter(session, signature, processor.padding).run
        self._prepare, self._stack = processor.prepare, processor.batch
        self._of_text = processor.medium == "text"
        self._low, self._high = batch_range(signature)
        self.largest = max(self._low, min(self._high, _CHUNK))
        self._stacks = signature.batch_dim is not None

    def feed(self, raw: Raw) -> Arrays:
        """The batched feed of one raw input.

        Raises:
            InputError: it cannot be read, or the model carries no processing that takes it.
        """
        return self._batch([self._prepare(raw)])

    def named(self, feed: Mapping[str, np.ndarray]) -> Arrays:
        """Run named tensors as they are: no processing before or after.

        Raises:
            InputError: a tensor is missing, unknown, or not of the signature's dtype and shape.
        """
        return self.run(self.check(feed))

    def one(self, raw: Raw) -> Record | Tensors:
        """Answer one raw input (errors as `feed`)."""
        feed = self.feed(raw)
        return self.finish(self.run(feed), feed)[0]

    def many(self, raws: Sequence[Raw]) -> list[Record | Tensors]:
        """Answer raw inputs in order, in batches within what the model takes.

        Pictures are prepared as their batch is filled, so that a long list needs no more memory.
        Texts are sorted by length first, so that no batch is padded more than it must be.

        Raises:
            EdgeError: as `feed`, saying which item it is about.
        """
        if self._of_text:
            return self._texts([_item(i, self._prepare, raw) for i, raw in enumerate(raws)])
        answers: list[Record | Tensors] = []
        batch: list[Arrays] = []
        for i, raw in enumerate(raws):
            sample = _item(i, self._prepare, raw)
            if batch and (len(batch) == self.largest or not _same_shapes(batch[0], sample)):
                answers += self._answer(batch)
                batch = []
            batch.append(sample)
        return answers + self._answer(batch) if batch else answers

    def _texts(self, samples: list[Arrays]) -> list[Record | Tensors]:
        order = sorted(range(len(samples)), key=lambda i: _longest(samples[i]))
        found: dict[int, Record | Tensors] = {}
        for start in range(0, len(order), self.largest):
            places = order[start : start + self.largest]
            found |= zip(places, self._answer([samples[i] for i in places]), strict=True)
        return [found[i] for i in range(len(samples))]

    def many_named(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """`named` for each, in order, those that can be stacked in one run of the model."""
        answers: list[Arrays] = []
        for group in self._groups([_item(i, self.check, feed) for i, feed in enumerate(feeds)]):
            answers += _split(self.run(_join(group)), group) if group[1:] else [self.run(group[0])]
        return answers

    def _answer(self, samples: list[Arrays]) -> list[Record | Tensors]:
        feed = self._batch(samples)
        return self.finish(self.run(feed), feed)[: len(samples)]

    def _batch(self, samples: list[Arrays]) -> Arrays:
        """Stack samples; fewer than the smallest batch are filled up with the last one."""
        return self._stack(samples + [samples[-1]] * (self._low - len(samples)))

    def _groups(self, feeds: Sequence[Arrays]) -> Iterator[list[Arrays]]:
        """Neighbours that differ in the batch axis only, as many as one run takes."""
        group: list[Arrays] = []
        rows = 0
        for feed in feeds:
            more = _rows(feed) if self._stacks else self.largest
            if group and (rows + more > self.largest or not _alike(group[0], feed)):
                yield group
                group, rows = [], 0
            group.append(feed)
            rows += more
        if group:
            yield group


def _rows(feed: Arrays) -> int:
    return len(next(iter(feed.values())))


def _longest(sample: Arrays) -> int:
    return max(row.size for row in sample.values())


def _same_shapes(one: Arrays, other: Arrays) -> bool:
    return all(one[name].shape == x.shape for name, x in other.items())


def _alike(one: Arrays, other: Arrays) -> bool:
    return all(one[name].shape[1:] == x.shape[1:] for name, x in other.items())


def _join(group: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([feed[name] for feed in group]) for name in group[0]}


def _split(outputs: Arrays, group: Sequence[Arrays]) -> list[Arrays]:
    ends = np.cumsum([0, *map(_rows, group)])
    return [{name: y[a:b] for name, y in outputs.items()} for a, b in pairwise(ends)]


def _item(i: int, make: Callable[[X], Y], x: X) -> Y:
    """``make(x)``, its error saying which item of the batch it is about."""
    try:
        return make(x)
    except EdgeError as error:
        told = error.fields() | {"thing": f"item {i}: {error.thing}"}
        raise revive(told) from error
