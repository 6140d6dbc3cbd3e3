"""The record of a segmentation, the step that reads it, and true masks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.steps import Activation, FieldKind, TaskOutput

__all__ = ["SCHEMA", "Area", "DrawnMask", "MaskFile", "Segment", "Segmentation"]


class Segmentation(Record, frozen=True, kw_only=True, tag_field="record", tag="segmentation"):
    """Class index of each pixel, int32 [H, W], and the labels the indexes point into.

    ``margin``, float32 [H, W], is how far each pixel's best class leads its second (of
    probabilities); None where that is not known.
    """

    sidecars: ClassVar = ("mask", "margin")

    mask: np.ndarray
    labels: tuple[str, ...]
    margin: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.hold("mask", np.int32, 2)
        if self.margin is not None:
            self.hold("margin", np.float32, 2)
            if self.margin.shape != self.mask.shape:
                raise ValueError(f"margin {self.margin.shape} for a mask {self.mask.shape}")


class Segment(TaskOutput, frozen=True, tag_field="step", tag="segment/1"):
    """The class of each pixel, at the output's own resolution.

    Attributes:
        output: Scores [classes, height, width], or integers [height, width]: classes already.
        axis: Where the classes lie, counted without the batch.
        activation: Turns scores into probabilities, for the margin. With "sigmoid" there is one
            score a pixel: class 1 from 0.5 on, else class 0.
    """

    output: str
    axis: int = 0
    activation: Activation = "softmax"

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        if integers:
            return FieldKind("mask", axis=0)
        return FieldKind.scores(self.activation, self.axis)


class Area(Value, frozen=True):
    """Pixels of one class: those whose centre lies in one of the polygons, or in the runs.

    Attributes:
        index: The class.
        polygons: Each ``x0, y0, x1, y1, ...`` in pixels of the upright photo.
        runs: Lengths of runs of pixels, column by column, outside and inside in turn.
    """

    index: int
    polygons: tuple[tuple[float, ...], ...] = ()
    runs: tuple[int, ...] = ()


class DrawnMask(Value, frozen=True, tag_field="truth", tag="areas"):
    """Classes of a picture's pixels, drawn; where two classes lie over each other is unlabelled.

    Attributes:
        areas: In any order.
        rest: Class of the pixels that no area covers; -1: they are unlabelled.
    """

    areas: tuple[Area, ...]
    rest: int = -1


class MaskFile(Value, frozen=True, tag_field="truth", tag="mask"):
    """Classes of a picture's pixels as a picture of class indexes; 255 is unlabelled.

    Attributes:
        path: Absolute path of the file.
        sha256: Of its bytes.
    """

    path: str
    sha256: str


SCHEMA = TaskSchema(
    Segmentation, unit="pixels", steps=(Segment,), truths=(DrawnMask, MaskFile), most_flips=0.02
)
