"""Checks an input's steps and compiles them: what `Processor.prepare` walks through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from edgeserve.errors import ProcessingError
from edgeserve.processing.geometry import MAX_PIXELS, Size, resized
from edgeserve.processing.tensor import Tail
from edgeserve.types.processing import (
    Cast,
    CenterCrop,
    Decode,
    InputProcessing,
    Layout,
    Normalize,
    Resize,
    Step,
)

__all__ = ["Plan", "step_name"]

_StepT = TypeVar("_StepT", bound=Step)

_GRAMMAR = "decode, then resize or center_crop, then normalize, then layout and dtype"
#: A step may only follow steps of its own rank or below.
_RANKS: dict[type[Step], int] = {
    Decode: 0,
    Resize: 1,
    CenterCrop: 1,
    Normalize: 2,
    Layout: 3,
    Cast: 3,
}


def step_name(step: Step) -> str:
    """Name of a step without its version, as timings show it: "resize"."""
    return str(type(step).__struct_config__.tag).partition("/")[0]


class Plan:
    """One input's steps, checked and compiled.

    Attributes:
        name: The model input that they make.
        decode: The first step.
        pixels: The steps on the 8-bit picture, in order, each with its name for timings.
        tail: What makes a tensor of it.
        size: Height and width of every result; None where they depend on the picture.
    """

    __slots__ = ("decode", "name", "pixels", "size", "tail")

    def __init__(self, processing: InputProcessing) -> None:
        """Check and compile.

        Raises:
            ProcessingError: EDGE-PROCESS-001 (order), EDGE-PROCESS-004 or 012 (parameters).
        """
        steps = processing.steps
        self.name = processing.name
        self.decode = _check_order(processing)
        pixels = [step for step in steps if isinstance(step, Resize | CenterCrop)]
        self.pixels = tuple((step_name(step), step) for step in pixels)
        self.size = _fixed_size(processing.name, pixels)
        self.tail = Tail(_only(steps, Normalize), _only(steps, Layout), _only(steps, Cast))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of one sample; None where a side depends on the picture."""
        height, width = self.size or (None, None)
        return (3, height, width) if self.tail.planar else (height, width, 3)


def _only(steps: Sequence[Step], kind: type[_StepT]) -> _StepT | None:
    return next((step for step in steps if isinstance(step, kind)), None)


def _check_order(processing: InputProcessing) -> Decode:
    steps = processing.steps
    ranks = [_RANKS.get(type(step), -1) for step in steps]
    single = [type(step) for step in steps if not isinstance(step, Resize | CenterCrop)]
    first = steps[0] if steps else None
    if isinstance(first, Decode) and ranks == sorted(ranks) and len(set(single)) == len(single):
        return first
    raise ProcessingError(
        "EDGE-PROCESS-001",
        f"steps of input {processing.name!r}",
        wanted=_GRAMMAR,
        got=", ".join(step_name(step) for step in steps) or "no steps",
        hint="put the steps in this order; only resize and center_crop may stand more than once",
    )


def _fixed_size(name: str, steps: Sequence[Resize | CenterCrop]) -> Size | None:
    size: Size | None = None
    for step in steps:
        if isinstance(step, Resize) and step.fit == "shortest-edge":
            size = resized(step, size) if size else None
        else:
            size = (step.height, step.width)
        if size and size[0] * size[1] > MAX_PIXELS:
            raise ProcessingError(
                "EDGE-PROCESS-004",
                f"step {step_name(step)!r} of input {name!r}",
                wanted=f"at most {MAX_PIXELS} pixels",
                got=f"{size[0]} x {size[1]}",
                hint="give the height and width that the model takes",
            )
    return size
