"""What every processing step has in common; the steps themselves stand in files of their own.

Steps before the model and on its outputs lie in `edgeserve.processing.steps`, one file each; those
that read a task's record in the folder of their task (`edgeserve.tasks`). A step's tag holds its
name and version (``resize/1``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value

__all__ = [
    "Activation",
    "FieldKind",
    "InputStep",
    "OutputStep",
    "Slice",
    "SlicedOutput",
    "TaskOutput",
    "TokenOutput",
]

Activation = Literal["none", "sigmoid", "softmax"]


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
    """A step before the model."""


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


class SlicedOutput(TaskOutput, frozen=True):
    """One that reads several things, each from a slice of an output."""

    @property
    def slices(self) -> dict[str, Slice]:
        """The slices that are given, by what they hold; "scores" is one of them."""
        raise NotImplementedError

    @property
    def output(self) -> str:
        """The output that holds the scores."""
        return self.slices["scores"].output

    @property
    def outputs(self) -> tuple[str, ...]:
        """See `OutputStep.outputs`."""
        return tuple(dict.fromkeys(each.output for each in self.slices.values()))

    def slice_field(self, name: str) -> FieldKind:
        """What one of its slices holds."""
        return FieldKind(name)
