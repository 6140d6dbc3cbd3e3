"""`Engine`: a loaded session between the processing before it and after it, one input or many.

The session runs behind an `Adapter`: whatever sizes and integer types its file is fixed to, it is
fed and answers as the source's signature declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from edgeserve.backends import Session, batching
from edgeserve.backends.adapter import Adapter, Arrays
from edgeserve.errors import EdgeError, revive
from edgeserve.processing import Processor, Raw
from edgeserve.types.records import Record, Tensors
from edgeserve.types.tensors import Signature

__all__ = ["Arrays", "Engine"]

X = TypeVar("X")
Y = TypeVar("Y")

#: No batch is made larger than this: on processors the gain ends at 4, and memory grows with it.
_MAX_BATCH = 8


class Engine:
    """Answers raw inputs and named tensors; threads may share it.

    Attributes:
        check: Named tensors of a caller made into a feed of the signature's dtypes (`InputError`).
        run: One run of the model, batched feed to batched outputs, both of the source's signature.
        finish: Batched outputs, and their feed, to one record a sample.
        largest: Samples that go through the model together at most.
    """

    def __init__(self, session: Session, processor: Processor, signature: Signature) -> None:
        self.session = session
        self.check, self.finish = processor.check_feed, processor.finish
        self.run = Adapter(session, signature, processor.padding).run
        self._prepare, self._stack = processor.prepare, processor.batch
        self._of_text = processor.medium == "text"
        self._smallest, high = batching.batch_range(signature)
        self.largest = max(self._smallest, min(high, _MAX_BATCH))
        self._stacks = signature.batch_dim is not None

    def feed(self, raw: Raw) -> Arrays:
        """The batched feed of one raw input.

        Raises:
            InputError: it cannot be read, or the model's processing does not accept it.
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
        """Answer raw inputs in order, in batches within the model's limits.

        Images are prepared as their batch is filled, so that a long list needs no more memory.
        Texts are sorted by length first, so that no batch is padded more than it must be.

        Raises:
            EdgeError: as `feed`, with the number of the item.
        """
        samples = (_item(i, self._prepare, raw) for i, raw in enumerate(raws))
        if not self._of_text:
            batches = batching.grouped(samples, self.largest, batching.same_shapes)
            return [answer for batch in batches for answer in self._answer(batch)]
        texts = list(samples)
        order = sorted(range(len(texts)), key=lambda i: max(x.size for x in texts[i].values()))
        answers: dict[int, Record | Tensors] = {}
        for batch in batching.in_batches(len(order), self.largest):
            indexes = [order[i] for i in batch]
            answers |= zip(indexes, self._answer([texts[i] for i in indexes]), strict=True)
        return [answers[i] for i in range(len(texts))]

    def many_named(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """`named` for each, in order; feeds that differ in the batch axis only share a run."""
        checked = (_item(i, self.check, feed) for i, feed in enumerate(feeds))
        rows = batching.row_count if self._stacks else lambda _: self.largest
        answers: list[Arrays] = []
        for group in batching.grouped(list(checked), self.largest, _differ_in_rows, rows):
            outputs = self.run(batching.join(group))
            sizes = [*map(batching.row_count, group)]
            answers += batching.split(outputs, sizes) if group[1:] else [outputs]
        return answers

    def _answer(self, samples: list[Arrays]) -> list[Record | Tensors]:
        feed = self._batch(samples)
        return self.finish(self.run(feed), feed)[: len(samples)]

    def _batch(self, samples: list[Arrays]) -> Arrays:
        """Stack samples; fewer than the smallest batch are filled up with the last one."""
        return self._stack(samples + [samples[-1]] * (self._smallest - len(samples)))


def _differ_in_rows(one: Arrays, other: Arrays) -> bool:
    return all(one[name].shape[1:] == x.shape[1:] for name, x in other.items())


def _item(i: int, make: Callable[[X], Y], x: X) -> Y:
    """``make(x)``, its error naming the item of the batch."""
    try:
        return make(x)
    except EdgeError as error:
        fields = error.fields() | {"thing": f"item {i}: {error.thing}"}
        raise revive(fields) from error
