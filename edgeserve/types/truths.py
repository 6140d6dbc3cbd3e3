"""What is true of an input, where the data say so: boxes, classes of pixels, spans, spoken time.

A `Sample` holds the one that its model's task asks for. A class, or the words of a transcript, is
its ``label``. Masks stay in their file or in the form they are drawn in: one picture at a time is
made of them.
"""

from __future__ import annotations

from edgeserve.types.base import Value

__all__ = [
    "Area",
    "DrawnMask",
    "MaskFile",
    "TrueBox",
    "TrueBoxes",
    "TrueSegments",
    "TrueSpans",
    "Truth",
]


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


class TrueSpans(Value, frozen=True, tag_field="truth", tag="spans"):
    """All labelled spans of a text: first character, the one after the last, and the label."""

    spans: tuple[tuple[int, int, str], ...]


class TrueSegments(Value, frozen=True, tag_field="truth", tag="segments"):
    """When somebody speaks: from and to, in seconds."""

    segments: tuple[tuple[float, float], ...]


Truth = TrueBoxes | DrawnMask | MaskFile | TrueSpans | TrueSegments
