"""The record of speech in frames, the step that reads it, and true segments."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.steps import Activation, FieldKind, TaskOutput

__all__ = ["SCHEMA", "Frames", "TrueSegments", "Voice"]


class Voice(Record, frozen=True, kw_only=True, tag_field="record", tag="voice"):
    """Speech probability per frame, float32 [n], and the frames' step in seconds."""

    sidecars: ClassVar = ("prob",)

    prob: np.ndarray
    step_s: float

    def __post_init__(self) -> None:
        self.hold("prob", np.float32, 1)


class Frames(TaskOutput, frozen=True, tag_field="step", tag="frames/1"):
    """The probability of speech in each frame.

    Attributes:
        output: [frames], or [frames, classes] with ``index``; axes of size 1 left out.
        step_s: Seconds from one frame to the next.
        activation: Turns scores into probabilities.
        index: The class that is speech; None: there is one number a frame.
    """

    output: str
    step_s: float
    activation: Activation = "none"
    index: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise ValueError(f"step_s {self.step_s} is no length of a frame")
        if self.index is not None and self.index < 0:
            raise ValueError(f"index {self.index} is below 0")

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind.scores(self.activation)


class TrueSegments(Value, frozen=True, tag_field="truth", tag="segments"):
    """When somebody speaks: from and to, in seconds."""

    segments: tuple[tuple[float, float], ...]


SCHEMA = TaskSchema(Voice, unit="frames", steps=(Frames,), truths=(TrueSegments,), most_drift=0.2)
