"""What every processing step has in common; the steps themselves stand in files of their own.

Steps before the model and on its outputs lie in `edgeserve.processing.steps`, one file each; those
that read a task's record in the folder of their task (`edgeserve.tasks`). A step's tag holds its
name and version (``resize/1``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from edgeserve.types.artifact import FileEntry
from edgeserve.types.base import Value

__all__ = ["Activation", "InputStep", "OutputStep", "Slice", "TaskOutput", "TokenOutput"]

Activation = Literal["none", "sigmoid", "softmax"]


class _Tagged(Value, frozen=True):
    @property
    def tag(self) -> str:
        """Name and version: "resize/1"."""
        return str(self.__struct_config__.tag)


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


class TaskOutput(OutputStep, frozen=True):
    """A step that reads a task's record out of the model's outputs. It stands last."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Assets that it names."""
        return ()

    @property
    def least_score(self) -> float:
        """The score from which something counts as found; 0 where nothing is left out."""
        return 0.0

    def lowered(self, margin: float) -> Self | None:
        """The step with this threshold lower by a margin; None: it leaves nothing out."""
        return None


class TokenOutput(TaskOutput, frozen=True):
    """One that reads scores a position: an output [positions, scores], not yet probabilities."""

    if TYPE_CHECKING:

        @property
        def mask(self) -> str | None:
            """Input that is 1 for positions that count; None: the processing knows, or all do."""


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
