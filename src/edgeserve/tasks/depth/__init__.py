"""The record of a depth estimation, and the step that reads it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.records import Record
from edgeserve.types.steps import FieldKind, TaskOutput

__all__ = ["SCHEMA", "Depth", "Depths"]


class Depth(Record, frozen=True, kw_only=True, tag_field="record", tag="depth"):
    """Depth float32 [H, W]."""

    sidecars: ClassVar = ("map",)

    map: np.ndarray

    def __post_init__(self) -> None:
        self.hold("map", np.float32, 2)


class Depths(TaskOutput, frozen=True, tag_field="step", tag="depth/1"):
    """The depth of each pixel: an output [height, width], axes of size 1 left out."""

    output: str

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("values")


SCHEMA = TaskSchema(Depth, unit="pixels", sure=0.0, steps=(Depths,), most_drift=0.05)
