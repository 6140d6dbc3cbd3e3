"""Real samples to calibrate with: chosen from the calibration half, prepared and checked.

    with_feeds = calibration(exported, root, "photos", seed=0, count=64)
    for feed in with_feeds:           # as often as a quantizer wants to go over them
        ...

Only what users send says which values a model's tensors take: there is no calibration on noise.
The half is the one that no verdict is reached on (`edgeserve.data.split`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from edgeserve.convert.calibration_checks import (
    SampleDiversity,
    check_feed,
    drop_evaluation_duplicates,
)
from edgeserve.data import Feed, Reader, input_sha256, scan, split
from edgeserve.data.reader import RawInput
from edgeserve.errors import EdgeError, InputError, ProcessingError, QuantizeError
from edgeserve.jobs import progress
from edgeserve.processing.processor import load_processor
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature

#: Fewest samples. Measured on EfficientNet-Lite0: 8 give the flips that 64 give, fewer were worse.
MIN_SAMPLES = 8

#: Fewest groups they come from: one photo's crops show one photo's colours.
MIN_GROUPS = 2

#: Most samples, unless another number is asked for.
MAX_SAMPLES = 64

#: Bytes of prepared feeds kept in memory; more are prepared again each time.
_CACHE_BYTES = 256 << 20


class Calibration:
    """Feeds of one sample each, checked. Iterate over it any number of times.

    Every feed has the source's names, dtypes and shapes; a free batch axis is 1, and where the
    source's batch is fixed above 1 the sample is repeated to fill it.

    Attributes:
        samples: What the feeds are made of, in the data's own order.
    """

    def __init__(
        self, exported: Exported, root: Path, samples: Sequence[Sample], keep: int = _CACHE_BYTES
    ) -> None:
        """Prepare and check all feeds once.

        Args:
            exported: Whose inputs are fed.
            root: Folder of the export's files.
            samples: Each becomes one feed (a row with a batch axis of several: one for each).
            keep: Bytes of feeds to hold in memory.

        Raises:
            QuantizeError: EDGE-QUANTIZE-003 to 005, by sample.
            ProcessingError: the declared processing does not fit the model.
        """
        self.samples = tuple(samples)
        self._signature = exported.signature
        self._processor = load_processor(exported, root)
        self._kept: list[Feed] | None = []
        size, spread = 0, SampleDiversity(self._signature)
        for feed in self._prepared():
            spread.add(feed)
            size += sum(array.nbytes for array in feed.values())
            if self._kept is not None:
                self._kept.append(feed)
            if size > keep:
                self._kept = None
        spread.check()
        self._count = spread.count

    def __len__(self) -> int:
        """How many feeds there are."""
        return self._count

    def __iter__(self) -> Iterator[Feed]:
        """The feeds, batch axis included."""
        return iter(self._kept) if self._kept is not None else self._prepared()

    def _prepared(self) -> Iterator[Feed]:
        with Reader(self._signature) as reader:
            for index, sample in enumerate(self.samples):
                progress("calibrate", index, len(self.samples))
                prepared = self._prepare(index, sample, reader.read(sample))
                for feed in _split_batch(prepared, self._signature):
                    check_feed(index, sample.id, feed, self._signature)
                    yield feed

    def _prepare(self, index: int, sample: Sample, raw: RawInput) -> Feed:
        try:
            if isinstance(raw, dict):
                return self._processor.check_feed(raw)
            rows = _fixed_batch(self._signature)
            return self._processor.batch([self._processor.prepare(raw)] * rows)
        except (InputError, ProcessingError) as error:
            raise _sample_error(index, sample, error) from error


def calibration(
    exported: Exported, root: Path, data: str | None, seed: int = 0, count: int = MAX_SAMPLES
) -> Calibration:
    """Choose, prepare and check samples of a data set.

    Args:
        exported: Whose inputs are fed.
        root: Folder of the export's files.
        data: What ``--data`` names; None: nothing, which is refused.
        seed: The seed of the split into halves, which also spreads the choice.
        count: Most samples to take.

    Raises:
        DataError: the data cannot be read or split.
        QuantizeError: EDGE-QUANTIZE-001 no data, -002 too few samples or groups, -003 NaN or
            infinity, -004 a sample that does not fit the model, -005 samples that are all alike,
            -006 one input in both halves.
    """
    if data is None:
        hint = "give inputs as your users send them: --data FOLDER (docs/guide/data.md)"
        raise QuantizeError(
            "EDGE-QUANTIZE-001", "calibration", wanted="samples of real data", got="none", hint=hint
        )
    samples = _chosen_samples(Path(data), exported.signature, seed, count)
    return Calibration(exported, root, samples)


def calibration_key(
    data: Path, signature: Signature, seed: int = 0, count: int = MAX_SAMPLES
) -> str:
    """sha256 over the samples that `calibration` would choose: what a cached artifact rests on.

    Raises:
        DataError, QuantizeError: see `calibration`.
    """
    digest = hashlib.sha256(f"{seed}:{count}".encode())
    with Reader(signature) as reader:
        for sample in _chosen_samples(data, signature, seed, count):
            digest.update(input_sha256(reader.read(sample)).encode())
    return digest.hexdigest()


def _chosen_samples(data: Path, signature: Signature, seed: int, count: int) -> tuple[Sample, ...]:
    halves = split(scan(data, signature).samples, seed)
    chosen = choose_samples(halves["calibration"], count, seed)
    with Reader(signature) as reader:
        chosen = drop_evaluation_duplicates(chosen, halves["evaluation"], reader)
    groups = len({sample.group for sample in chosen})
    if len(chosen) < MIN_SAMPLES or groups < MIN_GROUPS:
        total = len(halves["calibration"]) + len(halves["evaluation"])
        raise QuantizeError(
            "EDGE-QUANTIZE-002",
            f"calibration half of {data.name!r}",
            wanted=f"at least {MIN_SAMPLES} samples of at least {MIN_GROUPS} groups",
            got=f"{len(chosen)} samples of {groups} groups (of {total} in the data, "
            f"{count} allowed)",
            hint="add inputs: half of their groups is for calibration, the other half for judging",
        )
    return chosen


def choose_samples(samples: Sequence[Sample], count: int, seed: int = 0) -> tuple[Sample, ...]:
    """At most ``count`` samples, spread over the groups as evenly as they allow.

    Groups are gone through in turn, in the order of sha256 of ``{seed}:{group}``; from each the
    next sample is taken in the order of sha256 of ``{seed}:{id}``. What is chosen depends on names
    alone, and a smaller ``count`` chooses from among what a larger one does.

    Returns:
        The chosen samples in their order in ``samples``.
    """
    ranked = sorted(samples, key=lambda s: (_rank(seed, s.group), s.group, _rank(seed, s.id), s.id))
    queues: dict[str, deque[Sample]] = {}
    for sample in ranked:
        queues.setdefault(sample.group, deque()).append(sample)
    chosen: set[str] = set()
    while len(chosen) < min(count, len(samples)):
        for queue in queues.values():
            if queue and len(chosen) < count:
                chosen.add(queue.popleft().id)
    return tuple(sample for sample in samples if sample.id in chosen)


def _rank(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def _fixed_batch(signature: Signature) -> int:
    """The batch that all inputs are fixed to; 1 where it is free."""
    first = {spec.shape[0] if spec.shape else 1 for spec in signature.inputs}
    only = first.pop() if len(first) == 1 else 1
    return only if isinstance(only, int) else 1


def _split_batch(feed: Feed, signature: Signature) -> Iterator[Feed]:
    """Feeds of one sample each, where the batch is free."""
    rows = next(iter(feed.values())).shape[0] if signature.batch_dim else 1
    if rows == 1:
        yield feed
        return
    for row in range(rows):
        yield {name: np.ascontiguousarray(a[row : row + 1]) for name, a in feed.items()}


def _sample_error(index: int, sample: Sample, error: EdgeError) -> QuantizeError:
    return QuantizeError(
        "EDGE-QUANTIZE-004",
        f"calibration sample {index} ({sample.id})",
        wanted="an input that the model takes",
        got=error.message,
        hint=error.hint,
    )
