"""Batching: which inputs one run of a model takes together, and which answer belongs to which.

`BatchRunner` runs feeds through a session, several in a run where the file and the source allow it.
`PaddedBatch` pads texts of different length into one batch and cuts their answers apart again. The
functions are shared with the Wrapper, the endpoint and the measurement. Loads no engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from edgeserve.backends.adapter import Adapter, Arrays, fill_rows
from edgeserve.backends.session import Session
from edgeserve.processing import Processor
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO, Signature, TensorSpec

T = TypeVar("T")

#: Most inputs held and run at once.
MAX_BATCH = 16
#: Numbers that the inputs of one run may hold, where several fit: the activations of more leave the
#: processor's cache, and EfficientNet-Lite0 takes twice the time for each of 16 photos that it
#: takes for each of 2.
_CACHE_NUMBERS = 400_000


def in_batches(count: int, size: int = MAX_BATCH) -> Iterator[range]:
    """The numbers 0 to ``count - 1`` in ranges of at most ``size``."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def batch_range(signature: Signature, io: IO | None = None) -> tuple[int, int]:
    """Smallest and largest batch of one run; (1, 1) where the axes declare no batch.

    Args:
        signature: The source's.
        io: The file's, which may fix the batch; None: as the signature.
    """
    specs = (*io.inputs, *io.outputs) if io else (*signature.inputs, *signature.outputs)
    sizes = {spec.shape[0] if spec.shape else None for spec in specs}
    size = sizes.pop() if len(sizes) == 1 else None
    if isinstance(size, int):
        return (size, size) if size > 0 else (1, 1)
    if size is None or signature.batch_dim is None:
        return 1, 1
    low, high = signature.dims[signature.batch_dim]
    return max(1, low), max(1, high)


def grouped(
    items: Iterable[T],
    largest: int,
    joinable: Callable[[T, T], bool],
    rows: Callable[[T], int] = lambda _: 1,
) -> Iterator[list[T]]:
    """Runs of neighbours that fit into one batch, in order and made lazily.

    Args:
        items: Samples or feeds.
        largest: Rows of a batch at most; an item of more is alone.
        joinable: Whether an item may join a batch that begins with the first one.
        rows: Rows that an item takes.
    """
    group: list[T] = []
    total = 0
    for item in items:
        more = rows(item)
        if group and (total + more > largest or not joinable(group[0], item)):
            yield group
            group, total = [], 0
        group.append(item)
        total += more
    if group:
        yield group


def same_shapes(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether all arrays of two samples or feeds have the same shapes."""
    return all(one[name].shape == array.shape for name, array in other.items())


def row_count(feed: Mapping[str, np.ndarray]) -> int:
    """The size of a feed's first axis."""
    return len(next(iter(feed.values())))


def join(feeds: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
    """One feed out of several, along the first axis."""
    if len(feeds) == 1:
        return dict(feeds[0])
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def split(outputs: Mapping[str, np.ndarray], rows: Sequence[int]) -> list[Arrays]:
    """The outputs of a joined feed apart again, by the rows of each; further rows are dropped."""
    ends = np.cumsum([0, *rows])
    return [{name: array[a:b] for name, array in outputs.items()} for a, b in pairwise(ends)]


class BatchRunner:
    """A session under the signature's names: joins feeds into batches and splits the answers.

    The file's own integer types, batch and fixed lengths are `Adapter`'s business. Where the
    source's batch is fixed above 1, an input is repeated to fill it.

    Args:
        session: What to run.
        signature: The source's.
        padding: How inputs may be padded (`edgeserve.types.processing.Processing.padding`).

    Attributes:
        largest: Inputs that one run may take.
    """

    def __init__(
        self, session: Session, signature: Signature, padding: Mapping[str, Tokenize] | None = None
    ) -> None:
        self._adapter, self._session = Adapter(session, signature, padding), session
        self._smallest, self.largest = batch_range(signature, session.io)
        if signature.batch_dim is None:
            return
        if isinstance(session.io.inputs[0].shape[0], int):
            self._smallest = 1  # the adapter fills it up
        else:
            cached = max(self._smallest, 2, _batch_in_cache(signature))
            self.largest = min(self.largest, MAX_BATCH, cached)

    @property
    def fixed(self) -> bool:
        """The batch cannot be chosen."""
        return self._smallest == self.largest

    def takes(self, feed: Mapping[str, np.ndarray]) -> bool:
        """Whether the file accepts a feed's shapes, alone or repeated to its batch."""
        return self._adapter.takes(self._filled(feed))

    def run(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """Run feeds and return their outputs, both with batch axis and by the signature's names.

        Raises:
            BackendError: the runtime failed.
        """
        outputs: list[Arrays] = []
        for group in grouped(feeds, self.largest, _are_single_rows):
            joined = join(group)
            filled = self._filled(joined)
            made = self.run_once(filled)
            rows = [row_count(feed) for feed in group]
            outputs += [made] if len(group) == 1 and filled is joined else split(made, rows)
        return outputs

    def run_once(self, feed: Mapping[str, np.ndarray]) -> Arrays:
        """Run one feed as it is."""
        return self._adapter.run(feed)

    def close(self) -> None:
        """Close the session, before the block that opened it ends."""
        self._session.close()

    def _filled(self, feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """A feed of fewer rows than the smallest batch, its last one repeated to fill it."""
        sizes = {array.shape[0] if array.ndim else 0 for array in feed.values()}
        size = sizes.pop() if len(sizes) == 1 else 0
        return fill_rows(feed, self._smallest) if 0 < size < self._smallest else feed


def _are_single_rows(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Whether both feeds are one input each, of the same shapes."""
    return same_shapes(first, second) and all(x.shape[:1] == (1,) for x in first.values())


def _batch_in_cache(signature: Signature) -> int:
    """How many inputs fit into the cache; dynamic sizes count as their largest."""
    sizes = [
        [signature.dims.get(str(d), (1, 1))[1] if isinstance(d, str) else d for d in spec.shape[1:]]
        for spec in signature.inputs
    ]
    return _CACHE_NUMBERS // max(1, sum(math.prod(each) for each in sizes))


class PaddedBatch:
    """Pads several texts into one batch, and cuts their answers apart.

    Args:
        processor: The packaged processing, which knows how rows are padded.
        exported: The model, all of whose inputs are rows of a text.
    """

    def __init__(self, processor: Processor, exported: Exported) -> None:
        self._processor = processor
        self._signature = exported.signature
        self._padding = exported.processing.padding
        #: The first input of each dynamic length: its rows have the length of the answers.
        self._inputs: dict[str, str] = {}
        for spec in exported.signature.inputs:
            for axis, dim in enumerate(spec.shape):
                if axis and isinstance(dim, str):
                    self._inputs.setdefault(dim, spec.name)

    @classmethod
    def of(cls, processor: Processor, exported: Exported) -> PaddedBatch | None:
        """None for a model whose inputs are not padded."""
        return cls(processor, exported) if exported.processing.padding else None

    def takes(self, feed: Mapping[str, np.ndarray]) -> bool:
        """Whether a feed is one text."""
        return all(array.ndim == 2 and len(array) == 1 for array in feed.values())

    def run(self, runner: BatchRunner, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """Run feeds of one text each as one batch; their outputs, without those of padding.

        Raises:
            BackendError: the runtime failed.
        """
        texts = [{name: array[0] for name, array in feed.items()} for feed in feeds]
        outputs = runner.run_once(self._processor.batch(texts))
        return [
            {
                spec.name: self._cut(outputs[spec.name][i : i + 1], spec, feed)
                for spec in self._signature.outputs
            }
            for i, feed in enumerate(feeds)
        ]

    def _cut(
        self, array: np.ndarray, spec: TensorSpec, feed: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """One input's row of an output [1, ...] without what was computed from padding."""
        for axis, dim in enumerate(spec.shape):
            name = self._inputs.get(dim) if axis and isinstance(dim, str) else None
            if name is not None:
                size = feed[name].shape[1]
                left = name in self._padding and self._padding[name].padding == "left"
                start = array.shape[axis] - size if left else 0
                array = array.take(range(start, start + size), axis)
        return array
