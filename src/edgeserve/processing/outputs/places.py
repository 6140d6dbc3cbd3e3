"""Where the parts of a record lie: in slices of an output, or at the positions of a text or sound.

A slice holds numbers, a row for each thing: of boxes, scores, points. Positions have scores: which
of them count, and how sure each is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import Arrays, SampleOrigin, no_mask, wrong_outputs
from edgeserve.processing.image.pipeline import ImageTransform
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader
from edgeserve.types.processing import Processing
from edgeserve.types.records import Record
from edgeserve.types.steps import FoundOutput, PixelStep, Slice, SlicedOutput, TokenOutput
from edgeserve.types.tensors import Signature


def sliced(where: Slice, values: Arrays, what: str, *, several: bool = False) -> np.ndarray:
    """The numbers of each thing, float32 [n, k].

    Args:
        where: The slice.
        values: Outputs of one sample by name.
        what: What it holds, for errors.
        several: A thing has several numbers: an output of one axis is one thing, not one a number.

    Raises:
        ProcessingError: EDGE-PROCESS-008, the output of a sample has no such slice.
    """
    value = values[where.output]
    if value.ndim == 1 and not several:
        return np.asarray(value, np.float32)[:, None]
    axis = where.axis + value.ndim if where.axis < 0 else where.axis
    size = value.shape[axis] if 0 <= axis < value.ndim else 0
    stop = size if where.stop is None else where.stop
    if not where.start < stop <= size:
        wanted = f"{what} at {where.start}:{stop} of axis {where.axis} of output {where.output!r}"
        raise wrong_outputs(wanted, f"one sample of shape {list(value.shape)}")
    taken = value[(slice(None),) * axis + (slice(where.start, stop),)]
    return np.asarray(np.moveaxis(taken, axis, -1).reshape(-1, stop - where.start), np.float32)


_COUNTS = {None: "some", 4: "four"}


def _check_slice(
    where: Slice, what: str, size: int | None, step: str, signature: Signature
) -> None:
    """A slice lies within its output, as far as the signature tells.

    Args:
        where: The slice.
        what: What it holds.
        size: How many numbers each thing has there; None: one or more.
        step: The output step that names it, for errors.
        signature: The source's.

    Raises:
        ProcessingError: EDGE-PROCESS-006, it does not, or holds another number of them.
    """
    shape = signature.output(where.output).shape[1:]
    if len(shape) == 1 and size is None:
        return
    axis = where.axis + len(shape) if where.axis < 0 else where.axis
    there = shape[axis] if 0 <= axis < len(shape) else 0
    if isinstance(there, str):
        return
    stop = there if where.stop is None else where.stop
    if not where.start < stop <= there or (size is not None and stop - where.start != size):
        raise ProcessingError(
            "EDGE-PROCESS-006",
            f"{what} of {step}",
            wanted=f"{_COUNTS.get(size, size)} of output {where.output!r}, which is"
            f" {list(shape)} a sample",
            got=f"{where.start}:{stop} along axis {where.axis}",
            hint="count axes without the batch; `edgeserve inspect` shows the outputs",
        )


#: ``(values, transform)`` of one sample to its record; no transform of tensors that callers bring.
_ReadOne = Callable[[Arrays, ImageTransform | None], Record]


def found_reader(
    step: FoundOutput, name: str, model: ModelOutputs, read_one: _ReadOne
) -> RecordReader:
    """Reads what lies in places of a picture, sample by sample.

    Args:
        step: Says what lies where in the outputs.
        name: The input whose places they are; empty: the only one, or the first.
        model: The model.
        read_one: Makes a record of one sample's outputs and of what leads its places back.

    Raises:
        ProcessingError: EDGE-PROCESS-002, no picture is made into an input of that name; -006 a
            slice.
    """
    for what, each in step.slices.items() if isinstance(step, SlicedOutput) else ():
        _check_slice(each, what, 4 if what == "boxes" else None, step.tag, model.signature)
    steps = _place_steps(name, step.tag, model.processing)

    def read(values: Arrays, feed: Arrays, origins: Sequence[SampleOrigin]) -> list[Record]:
        samples = len(values[step.output])
        sizes = [origin.size for origin in origins] or [None] * samples
        ways = [None if size is None else ImageTransform(steps, size) for size in sizes]
        parts = [{name: values[name][i] for name in step.outputs} for i in range(samples)]
        return [read_one(*each) for each in zip(parts, ways, strict=True)]

    return read


def _place_steps(name: str, step: str, processing: Processing) -> tuple[PixelStep, ...]:
    """The resizing and cropping that places in a model's input are led back through."""
    if name and name not in [each.name for each in processing.inputs]:
        where = f"input of {step}"
        wanted = "an input made from the picture"
        hint = "name the input whose places the boxes are in, or none"
        raise ProcessingError("EDGE-PROCESS-002", where, wanted=wanted, got=name, hint=hint)
    return processing.pixel_steps(name)


#: ``(scores, where)`` of one sample to its record; see `positions`.
_ReadPositions = Callable[[np.ndarray, tuple[np.ndarray, np.ndarray]], Record]


def position_reader(
    step: TokenOutput, model: ModelOutputs, read_one: _ReadPositions
) -> RecordReader:
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
