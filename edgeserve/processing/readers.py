"""Which step reads which task's record, and what reads it: one record a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.processing.boxes import Detector
from edgeserve.processing.maps import depth, segmentation, voice
from edgeserve.processing.outsteps import wrong_outputs
from edgeserve.processing.prepared import Origin
from edgeserve.processing.tokenizer import Assets, speller
from edgeserve.processing.tokens import positions, spans, spelled, text
from edgeserve.types.processing import (
    CenterCrop,
    Depths,
    Detect,
    Frames,
    OutputStep,
    Picks,
    Processing,
    Reading,
    Resize,
    Segment,
    Slice,
    Spans,
)
from edgeserve.types.records import Record
from edgeserve.types.tensors import Signature
from edgeserve.types.words import Task

__all__ = ["READINGS", "Reader", "reader_of", "reading_of"]

#: The step that reads each task's record, for tasks that need one.
READINGS: dict[Task, type] = {
    "object-detection": Detect,
    "image-segmentation": Segment,
    "depth-estimation": Depths,
    "token-classification": Spans,
    "automatic-speech-recognition": Picks,
    "voice-activity": Frames,
    "text-generation": Picks,
}
_Arrays = Mapping[str, np.ndarray]
#: ``(outputs, feed, origins)`` to one record a sample.
Reader = Callable[[_Arrays, _Arrays, Sequence[Origin]], Sequence[Record]]


def reading_of(steps: Sequence[OutputStep], task: Task) -> Reading | None:
    """The step that reads the record; None for tasks that need none.

    Raises:
        ProcessingError: EDGE-PROCESS-030, the task needs one that is not there, or another stands
            in its place, or it does not stand last.
    """
    wanted = READINGS.get(task)
    found = [step for step in steps if isinstance(step, Reading)]
    if wanted is None and not found:
        return None
    if len(found) == 1 and steps[-1] is found[0] and wanted and isinstance(found[0], wanted):
        return found[0]
    names = ", ".join(_tag(type(step)) for step in steps) or "no output step"
    needed = f"{_tag(wanted)}, once and last" if wanted else "no step that reads another task"
    raise ProcessingError(
        "EDGE-PROCESS-030",
        f"output steps of the task {task!r}",
        wanted=needed,
        got=names,
        hint="say which outputs hold what (docs/processing.md), or declare the task 'tensors'",
    )


def _tag(step: type) -> str:
    return str(step.__struct_config__.tag)  # type: ignore[attr-defined]


def reader_of(
    processing: Processing,
    signature: Signature,
    task: Task,
    labels: tuple[str, ...],
    assets: Assets | None,
) -> Reader | None:
    """What reads the records of a task; None where no step does.

    Raises:
        ProcessingError: EDGE-PROCESS-030 (step), -006 (outputs), -002 (the input that boxes are
            places in), -025 (a mask), -020 to -022 (a tokenizer).
    """
    step = reading_of(processing.outputs, task)
    if isinstance(step, Detect):
        return _detector(step, processing, signature, labels)
    if isinstance(step, Segment):
        return _each(step.output, lambda value: segmentation(step, value, labels))
    if isinstance(step, Depths):
        return _each(step.output, lambda value: depth(step, value))
    if isinstance(step, Frames):
        return _each(step.output, lambda value: voice(step, value))
    if step is not None:
        _check_mask(step, signature)
        return _tokens(step, processing, labels, assets)
    return None


def _each(output: str, read: Callable[[np.ndarray], Record]) -> Reader:
    """A record of each sample's output alone."""
    return lambda values, feed, origins: [read(value) for value in values[output]]


def _detector(
    step: Detect, processing: Processing, signature: Signature, labels: tuple[str, ...]
) -> Reader:
    for what, each in step.slices.items():
        _check_slice(each, what, signature)
    made = [each for each in processing.inputs if step.input in ("", each.name)]
    if step.input and not made:
        raise ProcessingError(
            "EDGE-PROCESS-002",
            "input of detect/1",
            wanted="an input made from the picture",
            got=step.input,
            hint="name the input whose places the boxes are in, or none",
        )
    first = made[0].steps if made else ()
    read = Detector(step, [s for s in first if isinstance(s, Resize | CenterCrop)], labels)
    return lambda values, feed, origins: read(values, origins)


def _check_slice(where: Slice, what: str, signature: Signature) -> None:
    """A slice lies within its output, as far as the signature tells."""
    shape = signature.output(where.output).shape[1:]
    if len(shape) == 1 and what != "boxes":
        return
    axis = where.axis + len(shape) if where.axis < 0 else where.axis
    size = shape[axis] if 0 <= axis < len(shape) else 0
    if isinstance(size, str):
        return
    stop = size if where.stop is None else where.stop
    if not where.start < stop <= size or (what == "boxes" and stop - where.start != 4):
        raise ProcessingError(
            "EDGE-PROCESS-006",
            f"{what} of detect/1",
            wanted=f"{'four' if what == 'boxes' else 'some'} of output {where.output!r}, which is"
            f" {list(shape)} a sample",
            got=f"{where.start}:{stop} along axis {where.axis}",
            hint="count axes without the batch; `edgeserve inspect` shows the outputs",
        )


def _check_mask(step: Spans | Picks, signature: Signature) -> None:
    known = {spec.name: len(spec.shape) for spec in signature.inputs}
    if step.mask is not None and known.get(step.mask) != 2:
        raise ProcessingError(
            "EDGE-PROCESS-025",
            f"mask {step.mask!r} of {_tag(type(step))}",
            wanted="an input [batch, positions] that holds the mask",
            got=f"inputs {sorted(known)}",
            hint="name the model's input that is 1 for tokens and 0 for padding",
        )


def _tokens(
    step: Spans | Picks, processing: Processing, labels: tuple[str, ...], assets: Assets | None
) -> Reader:
    left = any(each.padding == "left" for each in processing.padding.values())
    own = step.tokenizer if isinstance(step, Picks) else None
    spell = speller(own, assets) if own else spelled(labels, getattr(step, "space", ""))

    def one(value: np.ndarray, mask: np.ndarray | None, origin: Origin) -> Record:
        if value.ndim != 2:
            wanted = f"output {step.output!r} as floats [positions, scores] a sample"
            raise wrong_outputs(wanted, str(list(value.shape)))
        where = positions(len(value), mask, origin, left)
        if isinstance(step, Spans):
            return spans(step, value, labels, where)
        return text(step, value, where[0], spell)

    def read(values: _Arrays, feed: _Arrays, origins: Sequence[Origin]) -> list[Record]:
        rows = values[step.output]
        masks = _masks(step, feed, len(rows))
        known = origins or [Origin()] * len(rows)
        return [one(*each) for each in zip(rows, masks, known, strict=True)]

    return read


def _masks(step: Spans | Picks, feed: _Arrays, samples: int) -> Sequence[np.ndarray | None]:
    """The mask of each sample; None where none is asked for."""
    if step.mask is None:
        return [None] * samples
    if step.mask not in feed or len(feed[step.mask]) != samples:
        raise ProcessingError(
            "EDGE-PROCESS-026",
            f"step {_tag(type(step))!r} of output {step.output!r}",
            wanted=f"the feed, for its mask {step.mask!r}",
            got=f"a feed of {sorted(feed)}",
            hint="give finish() the batch that the model was run with: finish(outputs, feed)",
        )
    return list(feed[step.mask])
