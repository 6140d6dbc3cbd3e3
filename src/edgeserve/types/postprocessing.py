"""Output steps that read a task's record out of a model's outputs. Each stands last.

What each computes stands in ``docs/processing.md``; the code in `edgeserve.processing`.
"""

from __future__ import annotations

import math
from typing import Literal

from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value

__all__ = [
    "Activation",
    "BoxForm",
    "BoxUnit",
    "Depths",
    "Detect",
    "Frames",
    "Picks",
    "Segment",
    "Slice",
    "Spans",
    "TaskOutput",
]

Activation = Literal["none", "sigmoid", "softmax"]
BoxForm = Literal["xyxy", "yxyx", "cxcywh", "xywh"]
BoxUnit = Literal["pixel", "relative"]


class Slice(Value, frozen=True):
    """Some of an output's numbers: those from ``start`` to before ``stop`` along ``axis``.

    Attributes:
        output: Its name.
        axis: Counted without the batch.
        start: First index along it.
        stop: The index after the last; None: to the end.
    """

    output: str
    axis: int = -1
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.stop is not None and self.stop <= self.start):
            raise ValueError(f"slice {self.start}:{self.stop} of {self.output!r} holds nothing")


class Detect(Value, frozen=True, tag_field="step", tag="detect/1"):
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

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold {self.threshold} is outside 0..1")
        if self.nms is not None and not 0 <= self.nms <= 1:
            raise ValueError(f"nms {self.nms} is outside 0..1")
        if self.most < 1:
            raise ValueError(f"most {self.most} is below 1")

    @property
    def slices(self) -> dict[str, Slice]:
        """What each slice holds: "boxes", "scores", "classes", "objectness", where given."""
        named = {
            "boxes": self.boxes,
            "scores": self.scores,
            "classes": self.classes,
            "objectness": self.objectness,
        }
        return {name: each for name, each in named.items() if each is not None}

    @property
    def output(self) -> str:
        """The output that holds the scores."""
        return self.scores.output

    @property
    def outputs(self) -> tuple[str, ...]:
        """Every output that is read, once."""
        return tuple(dict.fromkeys(each.output for each in self.slices.values()))


class Segment(Value, frozen=True, tag_field="step", tag="segment/1"):
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


class Depths(Value, frozen=True, tag_field="step", tag="depth/1"):
    """The depth of each pixel: an output [height, width], axes of size 1 left out."""

    output: str


class Spans(Value, frozen=True, tag_field="step", tag="spans/1"):
    """Labelled spans of characters out of scores a token.

    Attributes:
        output: Scores [tokens, labels], not yet probabilities.
        scheme: "bio": labels ``B-X`` and ``I-X``; "plain": neighbours of one label are one span.
        outside: The label of tokens that belong to no span.
        mask: Input that is 1 for tokens and 0 for padding; None: the processing knows, or every
            position counts.
    """

    output: str
    scheme: Literal["bio", "plain"] = "bio"
    outside: str = "O"
    mask: str | None = None


class Frames(Value, frozen=True, tag_field="step", tag="frames/1"):
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


class Picks(Value, frozen=True, tag_field="step", tag="tokens/1"):
    """The best token at each position, and the text that they spell.

    Attributes:
        output: Scores [positions, vocabulary], not yet probabilities.
        blank: The blank of a CTC head: repeated tokens become one, then blanks go. None: none.
        tokenizer: A ``tokenizer.json`` that spells the text, an asset; None: labels do, else ids.
        space: The label that stands for a space.
        mask: Input that is 1 for positions that count; None: all do.
    """

    output: str
    blank: int | None = None
    tokenizer: FileEntry | None = None
    space: str = "|"
    mask: str | None = None

    def __post_init__(self) -> None:
        if self.blank is not None and self.blank < 0:
            raise ValueError(f"blank {self.blank} is below 0")


TaskOutput = Detect | Segment | Depths | Spans | Frames | Picks
