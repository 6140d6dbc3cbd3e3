"""What all tasks share: the margins in force, the rule of a model, and decisions counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from edgeserve.types.words import Task

__all__ = ["DECIDED_MARGIN", "Figures", "Kind", "Rule", "Units", "all_flip"]

#: The margin from which a decision counts as decided: flipping it is harm. Of probabilities; for
#: object-detection how far a score lies above the threshold; for feature-extraction of cosines, by
#: which the nearest neighbour is nearer than the next. Depths are always decided.
DECIDED_MARGIN: Final[dict[Task, float]] = {
    "image-classification": 0.05,
    "text-classification": 0.05,
    "audio-classification": 0.05,
    "object-detection": 0.05,
    "image-segmentation": 0.05,
    "depth-estimation": 0.0,
    "feature-extraction": 0.01,
    "token-classification": 0.05,
    "automatic-speech-recognition": 0.05,
    "voice-activity": 0.05,
    "text-generation": 0.05,
}


@dataclass(frozen=True)
class Rule:
    """How decisions of one model are compared.

    Attributes:
        task: The model's.
        sure: Margin from which a decision counts as decided.
        threshold: Of a detector: the score from which a box is one.
    """

    task: Task
    sure: float
    threshold: float = 0.0


@dataclass(frozen=True)
class Units:
    """One input's decisions, counted in the task's own unit: boxes, pixels, frames, ...

    Attributes:
        n: How many.
        flips: How many the answer decides otherwise.
        decided: On how many the reference is sure, or the answer sure of what the reference lacks.
        decided_flips: How many of those flip.
        figures: The task's own figures of this input; may be empty.
    """

    n: int
    flips: int
    decided: int
    decided_flips: int
    figures: Mapping[str, float] = field(default_factory=dict)


class Figures(Protocol):
    """The task's own figures over all inputs, gathered one by one."""

    def add(self, reference: Any, answer: Any) -> None:
        """Take one input in; the answer may be None."""

    def value(self) -> dict[str, float]:
        """The figures so far; none before any input that has them."""


class Kind(NamedTuple):
    """What a task's module offers.

    Attributes:
        unit: What is counted, in the plural: "boxes".
        compare: ``(rule, reference, answer, sure)`` to `Units`; the answer is of the same kind.
        margin: ``(rule, record)``: the margin of the surest unit; 0 where there is none.
        gap: ``(rule, reference, answer)``: how far the answer moves decisions, in margins.
        describe: A record in a few words.
        figures: Makes the gatherer of the figures over all inputs; None: the task has none.
    """

    unit: str
    compare: Callable[[Rule, Any, Any, float], Units]
    margin: Callable[[Rule, Any], float]
    gap: Callable[[Rule, Any, Any], float]
    describe: Callable[[Any], str]
    figures: Callable[[Rule], Figures] | None = None


def all_flip(units: Units) -> Units:
    """The same decisions, each of them lost: what no answer at all comes to."""
    return Units(units.n, units.n, units.decided, units.decided)
