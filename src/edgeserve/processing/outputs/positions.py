"""Scores at each position of a text or sound: which positions count, and how sure each is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import Arrays, SampleOrigin, no_mask, wrong_outputs
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader
from edgeserve.types.records import Record
from edgeserve.types.steps import TokenOutput
from edgeserve.types.tensors import Signature

#: ``(scores, where)`` of one sample to its record; see `positions`.
_ReadOne = Callable[[np.ndarray, tuple[np.ndarray, np.ndarray]], Record]


def position_reader(step: TokenOutput, model: ModelOutputs, read_one: _ReadOne) -> RecordReader:
    """Reads a record from the positions of each sample that count.

    Raises:
        ProcessingError: EDGE-PROCESS-025, the step's mask is no input.
    """
    _check_mask(step, model.signature)
    left = any(each.padding == "left" for each in model.processing.padding.values())

    def one(value: np.ndarray, mask: np.ndarray | None, origin: SampleOrigin) -> Record:
        if value.ndim != 2:
            wanted = f"output {step.output!r} as floats [positions, scores] a sample"
            raise wrong_outputs(wanted, str(list(value.shape)))
        return read_one(value, positions(len(value), mask, origin, left))

    def read(values: Arrays, feed: Arrays, origins: Sequence[SampleOrigin]) -> list[Record]:
        rows = values[step.output]
        masks = _masks(step, feed, len(rows))
        known = origins or [SampleOrigin()] * len(rows)
        return [one(*each) for each in zip(rows, masks, known, strict=True)]

    return read


def _check_mask(step: TokenOutput, signature: Signature) -> None:
    known = {spec.name: len(spec.shape) for spec in signature.inputs}
    if step.mask is not None and known.get(step.mask) != 2:
        where = f"mask {step.mask!r} of {step.tag}"
        wanted = "an input [batch, positions] that holds the mask"
        got = f"inputs {sorted(known)}"
        hint = "name the model's input that is 1 for tokens and 0 for padding"
        raise ProcessingError("EDGE-PROCESS-025", where, wanted=wanted, got=got, hint=hint)


def _masks(step: TokenOutput, feed: Arrays, samples: int) -> Sequence[np.ndarray | None]:
    """The mask of each sample; None where none is asked for."""
    if step.mask is None:
        return [None] * samples
    if step.mask not in feed or len(feed[step.mask]) != samples:
        raise no_mask(step.tag, step.output, step.mask, feed)
    return list(feed[step.mask])


def positions(
    count: int, mask: np.ndarray | None, origin: SampleOrigin, left: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which positions of one sample count, and where each lies in its text.

    Args:
        count: How many positions there are, padding included.
        mask: 1 where a position counts [count]; None: all but the padding that is known of.
        origin: Of the sample.
        left: Padding comes first.

    Returns:
        Positions int [n], and their place int64 [n, 2]; without a text a position is its own place.

    Raises:
        ProcessingError: EDGE-PROCESS-008, more tokens than positions.
    """
    places = np.arange(count) if mask is None else np.flatnonzero(mask)
    offsets = origin.offsets
    if offsets is None:
        return places, np.stack([places, places + 1], axis=1)
    if mask is None and len(offsets) <= count:
        places = places[count - len(offsets) :] if left else places[: len(offsets)]
    if len(places) != len(offsets):
        raise wrong_outputs(f"scores for {len(offsets)} tokens", f"{len(places)}")
    real = offsets[:, 0] >= 0
    return places[real], offsets[real]


def leads(shares: np.ndarray, axis: int) -> np.ndarray:
    """By how much the best along an axis leads the second, float32; 1 where there is but one."""
    shares = np.moveaxis(shares, axis, 0)
    if len(shares) == 1:
        return np.ones(shares.shape[1:], np.float32)
    second, best = np.partition(shares, len(shares) - 2, axis=0)[-2:]
    return np.asarray(best - second, np.float32)


def position_scores(output: str, value: np.ndarray) -> np.ndarray:
    """The scores of one sample, float32 [positions, scores].

    Raises:
        ProcessingError: EDGE-PROCESS-008, they have another form.
    """
    if value.ndim != 2 or value.dtype.kind != "f" or not value.shape[1]:
        wanted = f"output {output!r} as floats [positions, scores] a sample"
        raise wrong_outputs(wanted, f"{value.dtype} {list(value.shape)}")
    return np.asarray(value, np.float32)
