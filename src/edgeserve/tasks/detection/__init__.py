"""The record of a detector, the step that reads it, and true boxes."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.steps import Activation, FieldKind, Slice, SlicedOutput

__all__ = ["SCHEMA", "BoxForm", "BoxUnit", "Detect", "Detection", "TrueBox", "TrueBoxes"]


class Detection(Record, frozen=True, kw_only=True, tag_field="record", tag="detection"):
    """Boxes float32 [n, 4] xyxy in pixels of the upright photo, scores float32 [n], labels [n].

    ``floor`` is the score from which boxes are listed, where some below the detector's threshold
    are: a reference says so what it nearly found. None: only what it found.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: tuple[str, ...]
    floor: float | None = None

    def __post_init__(self) -> None:
        self.hold("boxes", np.float32, 2)
        self.hold("scores", np.float32, 1)
        if self.boxes.size and self.boxes.shape[1] != 4:
            raise ValueError(f"boxes of {self.boxes.shape[1]} numbers, not 4")
        msgspec.structs.force_setattr(self, "boxes", self.boxes.reshape(-1, 4))
        if not len(self.boxes) == len(self.scores) == len(self.labels):
            counts = (len(self.boxes), len(self.scores), len(self.labels))
            raise ValueError("{} boxes, {} scores and {} labels".format(*counts))


BoxForm = Literal["xyxy", "yxyx", "cxcywh", "xywh"]
BoxUnit = Literal["pixel", "relative"]


class Detect(SlicedOutput, frozen=True, tag_field="step", tag="detect/1"):
    """Boxes, scores and classes out of one joined output or several.

    The numbers of one box lie along the ``axis`` of each slice; all other axes count boxes.

    Attributes:
        boxes: Four numbers a box.
        scores: A score a class and box; where ``classes`` is given, one score a box.
        classes: Class indexes, one a box; None: the class with the best score.
        objectness: Multiplies the scores of its box; None: there is none.
        form: What the four numbers are: two corners ("yxyx": rows first), or the centre or upper
            left corner and the size.
        unit: Pixels of the model's input, or shares of its width and height.
        activation: Applied to class scores; objectness gets a sigmoid wherever it is not "none".
        background: A class that stands for "nothing"; None: there is none.
        threshold: Boxes with a lower score are left out.
        nms: Of two boxes that overlap by more than this (IoU) the one with the lower score is left
            out; None: the model has done so itself.
        per_class: Boxes of different classes do not compete.
        most: So many boxes are kept at most, the best.
        input: The input whose resizing and cropping is undone; empty: the only one, or the first.
    """

    boxes: Slice
    scores: Slice
    classes: Slice | None = None
    objectness: Slice | None = None
    form: BoxForm = "xyxy"
    unit: BoxUnit = "pixel"
    activation: Activation = "none"
    background: int | None = None
    threshold: float = 0.5
    nms: float | None = None
    per_class: bool = True
    most: int = 100
    input: str = ""

    def slice_field(self, name: str) -> FieldKind:
        """See `SlicedOutput.slice_field`."""
        if name == "scores":
            return FieldKind.scores(self.activation)
        if name == "objectness":
            return FieldKind("scores" if self.activation == "none" else "logits")
        return FieldKind(name)


class TrueBox(Value, frozen=True):
    """A thing in a picture.

    Attributes:
        xyxy: Its corners, in pixels of the upright photo.
        label: Its class, as the model calls it.
        crowd: It stands for many things of the class: what is found in it counts for nothing.
    """

    xyxy: tuple[float, float, float, float]
    label: str
    crowd: bool = False


class TrueBoxes(Value, frozen=True, tag_field="truth", tag="boxes"):
    """All things in a picture; none: there is nothing of the model's classes in it."""

    boxes: tuple[TrueBox, ...]


SCHEMA = TaskSchema(Detection, unit="boxes", steps=(Detect,), truths=(TrueBoxes,), overlap="iou")
