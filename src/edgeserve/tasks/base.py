"""What all tasks share: the margins in force, the rule of a model, and decisions counted.

Beside these, what records of several tasks need: which floats stand for infinity in all that
compares outputs (validation and the Wrapper), and the large arrays of a record that are kept in
a file beside its JSON, which is no place for a mask of a million pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from edgeserve.types.records import Depth, Record, Segmentation, Voice
from edgeserve.types.vocabulary import Task

__all__ = [
    "DECIDED_MARGIN",
    "HUGE",
    "DecisionCounts",
    "DecisionRule",
    "MetricAccumulator",
    "TaskSpec",
    "attach_arrays",
    "comparable_floats",
    "count_all_flipped",
    "detach_arrays",
    "sidecar_arrays",
]


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
class DecisionRule:
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
class DecisionCounts:
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


class MetricAccumulator(Protocol):
    """The task's own figures over all inputs, gathered one by one."""

    def add(self, reference: Any, answer: Any) -> None:
        """Take one input in; the answer may be None."""

    def value(self) -> dict[str, float]:
        """The figures so far; none before any input that has them."""


class TaskSpec(NamedTuple):
    """What a task's module offers.

    Attributes:
        unit: What is counted, in the plural: "boxes".
        compare: ``(rule, reference, answer, sure)`` to `DecisionCounts`; the answer is of the same
        kind. margin: ``(rule, record)``: the margin of the surest unit; 0 where there is none.
        gap: ``(rule, reference, answer)``: how far the answer moves decisions, in margins.
        describe: A record in a few words. figures: Makes the gatherer of the figures over all
        inputs; None: the task has none.
    """

    unit: str
    compare: Callable[[DecisionRule, Any, Any, float], DecisionCounts]
    margin: Callable[[DecisionRule, Any], float]
    gap: Callable[[DecisionRule, Any, Any], float]
    describe: Callable[[Any], str]
    figures: Callable[[DecisionRule], MetricAccumulator] | None = None


def count_all_flipped(units: DecisionCounts) -> DecisionCounts:
    """The same decisions, each of them lost: what no answer at all comes to."""
    return DecisionCounts(units.n, units.n, units.decided, units.decided)


#: Magnitudes above this stand for infinity: masks are filled with the largest float, not with inf.
HUGE = 1e30


def comparable_floats(array: np.ndarray) -> np.ndarray:
    """As floats that can be subtracted; huge numbers as infinity."""
    wide = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    values = np.asarray(array, wide)
    if not values.size or (values.max() < HUGE and values.min() > -HUGE):  # no NaN among them
        return values
    return np.where(np.abs(values) >= HUGE, np.copysign(np.inf, values), values)


_SIDECAR_FIELDS: dict[type, tuple[str, ...]] = {
    Segmentation: ("mask", "margin"),
    Depth: ("map",),
    Voice: ("prob",),
}


def sidecar_arrays(record: Record | None) -> dict[str, np.ndarray]:
    """The arrays that are to lie in a file of their own, by field; none for most records."""
    names = _SIDECAR_FIELDS.get(type(record), ())
    found = {name: getattr(record, name) for name in names}
    return {name: array for name, array in found.items() if array is not None}


def detach_arrays(record: Record) -> Record:
    """The record without them."""
    arrays = sidecar_arrays(record)
    bare = {name: np.zeros((0,) * array.ndim, array.dtype) for name, array in arrays.items()}
    return msgspec.structs.replace(record, **bare) if bare else record


def attach_arrays(record: Record, arrays: Mapping[str, np.ndarray]) -> Record:
    """Undo `detach_arrays`.

    Args:
        record: What it gave.
        arrays: What `sidecar_arrays` gave; others are left out.

    Raises:
        ValueError: an array is missing, or is none that the record takes.
    """
    names = sidecar_arrays(record)
    if not names:
        return record
    if missing := names.keys() - arrays.keys():
        raise ValueError(f"the record's {sorted(missing)} are missing")
    return msgspec.structs.replace(record, **{name: arrays[name] for name in names})
