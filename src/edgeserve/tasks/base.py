"""What the folders of all tasks share: a task's schema, the rule of a model, decisions counted.

Beside these, what records of several tasks need: which floats stand for infinity in all that
compares outputs (validation and the Wrapper), and the large arrays of a record that are kept in
a file beside its JSON, which is no place for a mask of a million pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from edgeserve.types.records import Record

if TYPE_CHECKING:
    from edgeserve.types.steps import TaskOutput
    from edgeserve.types.vocabulary import Task


@dataclass(frozen=True)
class TaskSchema:
    """What is known of a task before anything is read or compared.

    Attributes:
        record: What its answers are.
        decisions: A record decides "one" thing, or "many" (boxes, pixels, tokens), or it decides
            among "neighbours": alone it decides nothing.
        sure: The margin from which a decision counts as decided: flipping it is an error. Of
            probabilities; for detectors how far a score lies above the threshold; for neighbours
            of cosines. 0: always decided.
        unit: What is counted, in the plural: "boxes".
        answer: What a decision is called in a sentence: "another label".
        steps: Output steps that read the record, of which a model needs one; none: the record is
            read from one output as it is.
        truths: What is known of an input where the data tell more than a label.
        overlap: The figure that says how well matched units overlap, 1 at best; empty: none does.
        most_drift: How far from the reference's the answer to a golden case may be at most, in the
            measure of `RecordComparison.gap`.
        most_flips: The share of its units that may be decided otherwise all the same; None: as
            many as are not decided.
        reads_places: An answer is places in the text that the model was given.
        predicts_next: A position's answer is the token that comes next.
    """

    record: type[Record]
    decisions: Literal["one", "many", "neighbours"] = "many"
    sure: float = 0.05
    unit: str = "inputs"
    answer: str = "answer"
    steps: tuple[type[TaskOutput], ...] = ()
    truths: tuple[type, ...] = ()
    overlap: str = ""
    most_drift: float = 0.1
    most_flips: float | None = None
    reads_places: bool = False
    predicts_next: bool = False


@dataclass(frozen=True)
class DecisionRule:
    """How decisions of one model are compared.

    Attributes:
        task: The model's.
        sure: Margin from which a decision counts as decided.
        threshold: The score from which something counts as found; 0 where nothing is left out.
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


#: A box to draw: corners xyxy in pixels of the upright photo, label and score.
BoxMark = tuple[tuple[float, float, float, float], str, float]


class RecordComparison(NamedTuple):
    """How records of one task are compared: the part ``compare`` of its folder.

    Attributes:
        compare: ``(rule, reference, answer, sure)`` to `DecisionCounts`; both are of one class.
        margin: ``(rule, record)``: the margin of the surest unit; 0 where there is none.
        gap: ``(rule, reference, answer)``: how far the answer moves decisions, in margins.
        describe: A record in a few words.
        details: What more there is to say of it, a line each.
        marks: Boxes to draw on the picture, in the record's order.
        class_of: What sets classes of records apart; the same for all where nothing does.
        least_score: The least score of what the record lists; None: it lists nothing by score.
    """

    compare: Callable[[DecisionRule, Any, Any, float], DecisionCounts]
    margin: Callable[[DecisionRule, Any], float]
    gap: Callable[[DecisionRule, Any, Any], float]
    describe: Callable[[Any], str]
    details: Callable[[Any], list[str]] = lambda record: []
    marks: Callable[[Any], list[BoxMark]] = lambda record: []
    class_of: Callable[[Any], object] = lambda record: None
    least_score: Callable[[Any], float | None] = lambda record: None


def count_flips(
    flips: np.ndarray | Sequence[bool],
    clear: np.ndarray | Sequence[bool],
    figures: Mapping[str, float] | None = None,
    *,
    extra: int = 0,
    clear_extra: int = 0,
) -> DecisionCounts:
    """Decisions by element: which flip, and which are decided; both bool of one shape.

    ``extra``: decisions that the answer alone has, which are flips; ``clear_extra``: the decided.
    """
    flip, sure = np.asarray(flips, bool), np.asarray(clear, bool)
    return DecisionCounts(
        n=flip.size + extra,
        flips=int(flip.sum()) + extra,
        decided=int(sure.sum()) + clear_extra,
        decided_flips=int((flip & sure).sum()) + clear_extra,
        figures=figures or {},
    )


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


def sidecar_arrays(record: Record | None) -> dict[str, np.ndarray]:
    """The arrays that are to lie in a file of their own, by field; none for most records."""
    found = {name: getattr(record, name) for name in (record.sidecars if record else ())}
    return {name: array for name, array in found.items() if array is not None}


_RecordT = TypeVar("_RecordT", bound=Record)


def detach_arrays(record: _RecordT) -> _RecordT:
    """The record without them."""
    arrays = sidecar_arrays(record)
    bare = {name: np.zeros((0,) * array.ndim, array.dtype) for name, array in arrays.items()}
    return msgspec.structs.replace(record, **bare) if bare else record


def attach_arrays(record: _RecordT, arrays: Mapping[str, np.ndarray]) -> _RecordT:
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
