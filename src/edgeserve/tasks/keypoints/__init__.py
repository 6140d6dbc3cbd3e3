"""Keypoint detection: poses, matched by the likeness of their points (OKS)."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.tasks.detection import BoxForm, BoxUnit
from edgeserve.types.base import Value
from edgeserve.types.records import Record
from edgeserve.types.steps import Activation, FieldKind, FoundOutput, Slice, SlicedOutput

__all__ = ["COCO_SIGMAS", "SCHEMA", "Heatmaps", "Keypoints", "Poses", "TruePose", "TruePoses"]

#: How far people place a point apart, as a share of the size of a person: nose, eyes, ears,
#: shoulders, elbows, wrists, hips, knees, ankles (https://cocodataset.org/#keypoints-eval).
COCO_SIGMAS = (
    *(0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072),
    *(0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089),
)


class Keypoints(Record, frozen=True, kw_only=True, tag_field="record", tag="keypoints"):
    """Poses, the surest first.

    Attributes:
        points: float32 [n, k, 2], x and y in pixels of the upright photo.
        point_scores: How sure each point is, float32 [n, k]; 0: it does not count.
        boxes: Around each pose, float32 [n, 4] xyxy.
        scores: How sure each pose is, float32 [n].
        labels: Names of the k points; empty: they are called by number.
        sigmas: Of the k points, see `COCO_SIGMAS`; empty: those.
        floor: The score from which poses are listed, where some below the threshold are; None: only
            those that were found.
    """

    points: np.ndarray
    point_scores: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    labels: tuple[str, ...] = ()
    sigmas: tuple[float, ...] = ()
    floor: float | None = None

    def __post_init__(self) -> None:
        self.hold("points", np.float32, 3)
        count = self.points.shape[1] if self.points.size else len(self.sigmas or COCO_SIGMAS)
        shapes = {"points": (count, 2), "point_scores": (count,), "boxes": (4,), "scores": ()}
        for name, shape in shapes.items():
            self.hold(name, np.float32, 1 + len(shape))
            array = getattr(self, name)
            if array.size and array.shape[1:] != shape:
                raise ValueError(f"{name} of shape {array.shape}, not {[len(array), *shape]}")
            msgspec.structs.force_setattr(self, name, array.reshape(-1, *shape))
        counts = {len(self.points), len(self.point_scores), len(self.boxes), len(self.scores)}
        if len(counts) > 1:
            raise ValueError(f"points, point_scores, boxes and scores of {sorted(counts)} poses")
        if len(self.sigmas or COCO_SIGMAS) != count:
            raise ValueError(f"{len(self.sigmas or COCO_SIGMAS)} sigmas for {count} points")
        if not all(0 < sigma < math.inf for sigma in self.sigmas):
            raise ValueError("a sigma that is not above 0")
        if self.labels and len(self.labels) != count:
            raise ValueError(f"{len(self.labels)} labels for {count} points")


class Heatmaps(FoundOutput, frozen=True, tag_field="step", tag="heatmaps/1"):
    """One pose a picture, out of a map for each point: the point is where its map is highest.

    The pose's score is the mean of its points' scores.

    Attributes:
        output: Maps [points, height, width].
        axis: Where the points lie, counted without the batch.
        activation: Makes scores of the maps' values; "softmax" is over a map's places.
        shift: A point moves a quarter of a place towards the higher neighbour, in each direction.
        threshold: A pose with a lower score is left out.
        visible: A point with a lower score does not count: its score becomes 0.
        sigmas: See `Keypoints`.
        input: The input whose resizing and cropping is undone; empty: the only one, or the first.
    """

    output: str
    axis: int = 0
    activation: Activation = "none"
    shift: bool = True
    threshold: float = 0.3
    visible: float = 0.2
    sigmas: tuple[float, ...] = ()
    input: str = ""

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """See `TaskOutput.class_names`: labels name points, and poses are of one class."""
        return ()

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("scores" if self.activation == "none" else "logits", axis=self.axis)


class Poses(SlicedOutput, frozen=True, tag_field="step", tag="poses/1"):
    """Poses as rows of numbers, out of one joined output or several.

    The numbers of one pose lie along the ``axis`` of each slice; all other axes count poses.

    Attributes:
        points: Two or three numbers a point, in turn: x, y and, of three, the point's score.
        scores: One score a pose; None: the mean of its points' scores.
        boxes: Four numbers a pose; None: the rectangle around its points that count.
        each: How many numbers a point has.
        form: What the four numbers of a box are; see `Detect`.
        unit: Points and boxes in pixels of the model's input, or shares of its width and height.
        activation: Makes scores of the poses' scores.
        point_activation: Makes scores of the points' scores.
        threshold: Poses with a lower score are left out.
        visible: A point with a lower score does not count: its score becomes 0.
        nms: Of two poses whose boxes overlap by more than this (IoU) the one with the lower score
            is left out; None: the model has done so itself.
        most: So many poses are kept at most, the best.
        sigmas: See `Keypoints`.
        input: The input whose resizing and cropping is undone; empty: the only one, or the first.
    """

    points: Slice
    scores: Slice | None = None
    boxes: Slice | None = None
    each: Literal[2, 3] = 3
    form: BoxForm = "cxcywh"
    unit: BoxUnit = "pixel"
    activation: Literal["none", "sigmoid"] = "none"
    point_activation: Literal["none", "sigmoid"] = "none"
    threshold: float = 0.5
    visible: float = 0.2
    nms: float | None = None
    most: int = 20
    sigmas: tuple[float, ...] = ()
    input: str = ""

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """See `TaskOutput.class_names`: labels name points, and poses are of one class."""
        return ()

    def slice_field(self, name: str) -> FieldKind:
        """See `SlicedOutput.slice_field`."""
        if name == "scores":
            return FieldKind.scores(self.activation)
        return FieldKind("values" if name == "points" else name)


class TruePose(Value, frozen=True):
    """A thing in a picture by its points.

    Attributes:
        points: Three numbers a point: x, y in pixels of the upright photo, and 0 where the point is
            not labelled.
        area: Of the thing, in pixels.
        xyxy: The corners of its box.
        crowd: What is found there counts for nothing.
    """

    points: tuple[float, ...]
    area: float
    xyxy: tuple[float, float, float, float]
    crowd: bool = False


class TruePoses(Value, frozen=True, tag_field="truth", tag="poses"):
    """All things in a picture; none: there is none."""

    poses: tuple[TruePose, ...]


SCHEMA = TaskSchema(
    Keypoints, unit="poses", steps=(Heatmaps, Poses), truths=(TruePoses,), overlap="oks"
)
