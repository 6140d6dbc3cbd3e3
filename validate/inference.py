"""From raw input to decision: processing, a session run in batches, and its outputs read.

`prepare_feed` makes a feed of a raw input; `BatchRunner` runs feeds through a session;
`PaddedBatch` puts texts of different length into one batch, padded as the Wrapper pads them, and
cuts the answers apart again; `decision` reads the packaged processing's decision. Loads no
engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from edgeserve.backends.adapter import Adapter
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import DataError, InputError, ProcessingError
from edgeserve.processing import Processor
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.records import Record, Tensors
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO, Signature, TensorSpec

__all__ = [
    "MAX_BATCH",
    "BatchRunner",
    "PaddedBatch",
    "decision",
    "in_batches",
    "load_processor",
    "prepare_feed",
]


#: Most inputs held and run at once.
MAX_BATCH = 16
#: Numbers that the inputs of one run may hold, where several fit: what a network makes of more
#: leaves the processor's cache, and EfficientNet-Lite0 takes twice the time for each of 16 photos
#: that it takes for each of 2.
_CACHE_NUMBERS = 400_000

#: What an input has to be, by the model's medium, and how to give it.
_WANTED = {
    "tensors": ("named tensors", "give an .npz of tensors"),
    "image": ("an image file", "give a folder of files or a data.jsonl"),
    "audio": ("an audio file", "give a folder of files or a data.jsonl"),
    "text": ("a text", "give a data.jsonl of texts, a folder of .txt files, or an .npz of ids"),
}

#: What processing says of an input that is at fault itself.
_INPUT_ERRORS = ("EDGE-PROCESS-027",)


def in_batches(count: int, size: int = MAX_BATCH) -> Iterator[range]:
    """The numbers 0 to ``count - 1`` in runs of at most ``size``."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def prepare_feed(processor: Processor, raw: RawInput, thing: str) -> Feed:
    """One raw input as named model inputs, batch axis included.

    Raises:
        DataError: EDGE-DATA-020, the input cannot be used with this model.
    """
    medium = processor.medium
    try:
        if isinstance(raw, dict):
            if medium in ("tensors", "text"):  # texts may come as the numbers of their tokens
                return processor.check_feed(raw)
        elif medium != "tensors" and isinstance(raw, str) == (medium == "text"):
            return processor.batch([processor.prepare(raw)])
    except (InputError, ProcessingError) as error:
        if error.code not in _INPUT_ERRORS and not isinstance(error, InputError):
            raise
        raise DataError(
            "EDGE-DATA-020",
            thing,
            wanted="an input that the model's processing takes",
            got=error.message,
            hint=error.hint,
        ) from error
    got = {"dict": "named tensors", "str": "a text"}.get(type(raw).__name__, "a file")
    wanted, hint = _WANTED[medium]
    raise DataError("EDGE-DATA-020", thing, wanted=wanted, got=got, hint=hint)


class BatchRunner:
    """A session under the signature's names: joins feeds into batches and takes answers apart.

    The file's own integer types, batch and fixed lengths are `Adapter`'s business. Where the
    source's batch is fixed above 1, an input is repeated to fill it.

    Args:
        session: What to run.
        signature: The source's.
        padding: How inputs may be padded (`edgeserve.types.processing.Processing.padding`).
    """

    def __init__(
        self, session: Session, signature: Signature, padding: Mapping[str, Tokenize] | None = None
    ) -> None:
        self._adapter, self._session = Adapter(session, signature, padding), session
        self._low, self._high = _batch_range(session.io, signature)

    @property
    def most(self) -> int:
        """How many inputs one run may take."""
        return self._high

    @property
    def fixed(self) -> bool:
        """The batch cannot be chosen."""
        return self._low == self._high

    def takes(self, feed: Feed) -> bool:
        """Whether a feed's shapes are ones that the file takes, alone or repeated to its batch."""
        return self._adapter.takes(self._filled(feed))

    def run(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Run feeds and return their outputs, both with batch axis and by the signature's names.

        Raises:
            BackendError: the runtime failed.
        """
        outputs: list[Feed] = []
        for group in self._groups(feeds):
            outputs += self._run([feeds[i] for i in group])
        return outputs

    def run_once(self, feed: Mapping[str, np.ndarray]) -> Feed:
        """Run one feed as it is."""
        return self._adapter.run(feed)

    def close(self) -> None:
        """Close the session, before the block that opened it ends: it answers no more."""
        self._session.close()

    def _groups(self, feeds: Sequence[Feed]) -> Iterator[list[int]]:
        """Runs of neighbours that fit into one batch."""
        group: list[int] = []
        for i, feed in enumerate(feeds):
            fits = group and self._same(feeds[group[0]], feed) and len(group) < self._high
            if group and not fits:
                yield group
                group = []
            group.append(i)
        if group:
            yield group

    def _same(self, first: Feed, second: Feed) -> bool:
        """Whether both are one input each, of the same shapes."""
        return all(
            array.shape == second[name].shape and array.shape[:1] == (1,)
            for name, array in first.items()
        )

    def _run(self, feeds: list[Feed]) -> list[Feed]:
        if len(feeds) == 1:
            return [self._only(feeds[0])]
        joined = {name: np.concatenate([f[name] for f in feeds]) for name in feeds[0]}
        outputs = self.run_once(self._filled(joined))
        return [
            {name: array[i : i + 1] for name, array in outputs.items()} for i in range(len(feeds))
        ]

    def _only(self, feed: Feed) -> Feed:
        filled = self._filled(feed)
        outputs = self.run_once(filled)
        if filled is feed:
            return outputs
        return {name: array[:1] for name, array in outputs.items()}

    def _filled(self, feed: Feed) -> Feed:
        """A feed of fewer inputs than the smallest batch, its last one repeated to fill it."""
        sizes = {array.shape[0] if array.ndim else 0 for array in feed.values()}
        size = sizes.pop() if len(sizes) == 1 else 0
        if not 0 < size < self._low:
            return feed
        lack = self._low - size
        return {n: np.concatenate([a, *[a[-1:]] * lack]) for n, a in feed.items()}


def _batch_range(io: IO, signature: Signature) -> tuple[int, int]:
    """Smallest and largest batch of one run, as both the file and the signature have it."""
    first = {spec.shape[0] if spec.shape else None for spec in (*io.inputs, *io.outputs)}
    only = first.pop() if len(first) == 1 else None
    if signature.batch_dim is None:
        return (only, only) if isinstance(only, int) else (1, 1)
    if isinstance(only, int):
        return 1, only  # the adapter fills it up
    if only is None:
        return 1, 1
    low, high = signature.dims[signature.batch_dim]
    return max(low, 1), max(1, min(high, MAX_BATCH, max(low, 2, _batch_in_cache(signature))))


def _batch_in_cache(signature: Signature) -> int:
    """How many inputs fit into the cache; sizes that are free count as their largest."""
    sizes = [
        [signature.dims.get(str(d), (1, 1))[1] if isinstance(d, str) else d for d in spec.shape[1:]]
        for spec in signature.inputs
    ]
    return _CACHE_NUMBERS // max(1, sum(math.prod(each) for each in sizes))


class PaddedBatch:
    """Makes one batch of several texts, and takes its answers apart.

    Args:
        processor: The packaged processing, which knows how rows are padded.
        exported: The model, all of whose inputs are rows of a text.
    """

    def __init__(self, processor: Processor, exported: Exported) -> None:
        self._processor = processor
        self._signature = exported.signature
        self._padding = exported.processing.padding
        #: The first input of each dynamic length: its rows tell how long an answer is.
        self._inputs: dict[str, str] = {}
        for spec in exported.signature.inputs:
            for axis, dim in enumerate(spec.shape):
                if axis and isinstance(dim, str):
                    self._inputs.setdefault(dim, spec.name)

    @classmethod
    def of(cls, processor: Processor, exported: Exported) -> PaddedBatch | None:
        """None for a model whose inputs are not padded."""
        return cls(processor, exported) if exported.processing.padding else None

    def takes(self, feed: Feed) -> bool:
        """Whether a feed is one text."""
        return all(array.ndim == 2 and len(array) == 1 for array in feed.values())

    def run(self, runner: BatchRunner, feeds: Sequence[Feed]) -> list[Feed]:
        """Run feeds of one text each as one batch; their outputs, without what answers padding.

        Raises:
            BackendError: the runtime failed.
        """
        rows = [{name: array[0] for name, array in feed.items()} for feed in feeds]
        outputs = runner.run_once(self._processor.batch(rows))
        return [
            {spec.name: self._cut(outputs[spec.name], spec, i, feed) for spec in self._outputs}
            for i, feed in enumerate(feeds)
        ]

    @property
    def _outputs(self) -> tuple[TensorSpec, ...]:
        return self._signature.outputs

    def _cut(self, array: np.ndarray, spec: TensorSpec, row: int, feed: Feed) -> np.ndarray:
        """One input's part of an output [batch, ...]."""
        array = array[row : row + 1]
        for axis, dim in enumerate(spec.shape):
            name = self._inputs.get(dim) if axis and isinstance(dim, str) else None
            if name is not None:
                size = feed[name].shape[1]
                left = name in self._padding and self._padding[name].padding == "left"
                start = array.shape[axis] - size if left else 0
                array = array.take(range(start, start + size), axis)
        return array


def load_processor(exported: Exported, folder: Path) -> Processor:
    """The processing of an exported model; its assets are read from ``folder``.

    Args:
        exported: The model.
        folder: The folder that its files lie in.

    Raises:
        ProcessingError: the processing does not fit the model, or an asset is missing or changed.
    """
    return Processor(
        exported.processing,
        exported.signature,
        exported.task,
        exported.labels,
        assets=lambda name: (folder / name).read_bytes(),
    )


def decision(processor: Processor, outputs: Feed, feed: Feed) -> Record | None:
    """The decision in the outputs of one input, for a task that has decisions.

    Args:
        processor: The packaged processing.
        outputs: What the model gave, batch axis included.
        feed: What it was fed: pooling needs its mask.

    Returns:
        None where the result is NaN, or the outputs are those of several inputs.

    Raises:
        ProcessingError: the outputs are no scores.
    """
    try:
        results = processor.finish(outputs, feed)
    except ProcessingError as error:
        if error.code == "EDGE-PROCESS-009":
            return None
        raise
    only = results[0] if len(results) == 1 else None
    return None if isinstance(only, Tensors) else only
