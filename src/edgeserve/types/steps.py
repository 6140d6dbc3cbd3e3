"""What every processing step has in common; the steps themselves stand in files of their own.

Steps before the model and on its outputs lie in `edgeserve.processing.steps`, one file each; those
that read a task's record in the folder of their task (`edgeserve.tasks`). A step's tag holds its
name and version (``resize/1``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from msgspec.structs import replace

from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image


Activation = Literal["none", "sigmoid", "softmax"]
Color = tuple[int, int, int]
#: Height and width in pixels.
Size = tuple[int, int]
#: What a model was fed, where that is known.
Feed = Mapping[str, "np.ndarray"] | None

#: No step makes a picture with more pixels than this.
MAX_PIXELS = 178_956_970


def held_bytes(size: Size) -> int:
    """Memory of a picture: 4 bytes a pixel, and for each row what it costs to find and visit it."""
    return size[0] * (_ROW_BYTES + 4 * size[1])


#: Of each row; a pointer takes 8, and the time that a row takes counts as the rest.
_ROW_BYTES = 16

#: No threshold is lowered below this.
_MIN_THRESHOLD = 1e-6
#: Things looked at below a threshold, as a multiple of those that may be kept.
_MORE = 4


def check_color(name: str, color: Color) -> None:
    """Raise ValueError for levels that no pixel has."""
    if not all(0 <= level <= 255 for level in color):
        raise ValueError(f"{name} {color} is outside 0..255")


class FieldKind(NamedTuple):
    """What an output, or a part of one, holds.

    Attributes:
        word: "boxes", "scores", "classes", "mask", "logits", "embedding" or "values".
        softmax: A softmax over the channels makes probabilities of it.
        axis: Of the channels, counted without the batch.
    """

    word: str
    softmax: bool = False
    axis: int = -1

    @classmethod
    def scores(cls, activation: Activation, axis: int = -1) -> FieldKind:
        """Scores, or the logits that an activation makes scores of."""
        return cls("scores" if activation == "none" else "logits", activation == "softmax", axis)


class _Tagged(Value, frozen=True):
    @property
    def tag(self) -> str:
        """Name and version: "resize/1"."""
        return str(self.__struct_config__.tag)

    @property
    def files(self) -> dict[str, FileEntry]:
        """Assets that it names, by field."""
        held = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in held if isinstance(value, FileEntry)}


class InputStep(_Tagged, frozen=True):
    """A step before the model.

    Attributes:
        medium: What it is made for.
        rank: A step may only follow steps of its own rank or below; rank 0 stands first.
    """

    medium: ClassVar[Literal["image", "audio", "text"]] = "image"
    rank: ClassVar[int] = 0


class Placement(NamedTuple):
    """Where the pixels of a picture lie in what a step makes of it: ``x * scale + shift``.

    Attributes:
        scale: Of height and width.
        shift: In rows and columns of the result.
        size: Height and width of the result.
    """

    scale: tuple[float, float]
    shift: tuple[float, float]
    size: Size


class PixelStep(InputStep, frozen=True):
    """A step on an 8-bit RGB picture; any number of them may follow each other."""

    rank: ClassVar[int] = 1

    def apply(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """What it makes of a picture, which is never changed itself."""
        raise NotImplementedError

    def out_size(self, size: Size | None) -> Size | None:
        """Height and width of its result, of a picture of this size; None where either is open."""
        raise NotImplementedError

    def placement(self, size: Size) -> Placement:
        """Where the pixels of a picture of this size lie in its result."""
        raise NotImplementedError

    def peak_bytes(self, size: Size) -> int:
        """Most bytes that it takes beside a picture of this size, its result included."""
        return held_bytes(self.placement(size).size)


class LevelStep(InputStep, frozen=True):
    """A step on the levels of a picture's channels, or on the order of its axes; once at most."""

    def apply(self, levels: np.ndarray) -> np.ndarray:
        """What each level of each channel [3, 256] becomes."""
        return levels

    def affine(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Scale and bias of each channel, float32 [3], where that is all it does; else None."""
        return None

    @property
    def planar(self) -> bool | None:
        """Whether channels come before rows and columns; None: it leaves them where they are."""
        return None


class OutputStep(_Tagged, frozen=True):
    """A step on one batched output of the model."""

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The output that it works on; of several the one that holds the scores."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Every output that it reads, once."""
        return (self.output,)

    def field(self, integers: bool) -> FieldKind:
        """What its output holds.

        Args:
            integers: The output is of whole numbers.
        """
        return FieldKind("scores")

    def apply(self, value: np.ndarray, feed: Feed) -> np.ndarray:
        """What it makes of an output.

        Args:
            value: The output, axis 0 the samples.
            feed: What the model was fed; None: not known.
        """
        return value


class TaskOutput(OutputStep, frozen=True):
    """A step that reads a task's record out of the model's outputs. It stands last."""

    @property
    def least_score(self) -> float:
        """The score from which something counts as found; 0 where nothing is left out."""
        return 0.0

    def lowered(self, margin: float) -> Self | None:
        """The step with this threshold lower by a margin; None: it leaves nothing out."""
        return None

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """What true answers may be called, of the model's labels."""
        return labels


class FoundOutput(TaskOutput, frozen=True):
    """One that lists things by score, from its threshold on."""

    if TYPE_CHECKING:

        @property
        def threshold(self) -> float:
            """Things with a lower score are left out."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold {self.threshold} is outside 0..1")
        for name in ("nms", "visible"):
            share = getattr(self, name, None)
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name} {share} is outside 0..1")
        if (most := getattr(self, "most", 1)) < 1:
            raise ValueError(f"most {most} is below 1")

    @property
    def least_score(self) -> float:
        """See `TaskOutput.least_score`."""
        return self.threshold

    def lowered(self, margin: float) -> Self:
        """See `TaskOutput.lowered`; more things are looked at than may be kept."""
        most = {"most": _MORE * self.most} if hasattr(self, "most") else {}
        least = max(self.threshold - margin, _MIN_THRESHOLD)
        return replace(self, threshold=least, **most)


class TokenOutput(TaskOutput, frozen=True):
    """One that reads scores a position: an output [positions, scores], not yet probabilities."""

    if TYPE_CHECKING:

        @property
        def mask(self) -> str | None:
            """Input that is 1 for positions that count; None: the processing knows, or all do."""

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("logits", softmax=True)


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


class SlicedOutput(FoundOutput, frozen=True):
    """One that reads several things, each from a slice of an output."""

    @property
    def slices(self) -> dict[str, Slice]:
        """The slices that are given, by what they hold."""
        held = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in held if isinstance(value, Slice)}

    @property
    def output(self) -> str:
        """The output that holds the scores, else the first that is named."""
        slices = self.slices
        return slices.get("scores", next(iter(slices.values()))).output

    @property
    def outputs(self) -> tuple[str, ...]:
        """See `OutputStep.outputs`."""
        return tuple(dict.fromkeys(each.output for each in self.slices.values()))

    def slice_field(self, name: str) -> FieldKind:
        """What one of its slices holds."""
        return FieldKind(name)
