"""Decisions: how sure a record is, and whether two records decide the same.

What the gate counts, the Wrapper proves and a report shows, one module a task; the table is in
``docs/tasks.md``. A classification is one decision; other records hold many: boxes, pixels, frames,
spans, tokens (`compare`). What an embedding decides is its nearest neighbour in a set:
`edgeserve.neighbours` says which, and by how much; alone it has neither margin nor sameness.
"""

from __future__ import annotations

from edgeserve.decisions import classes
from edgeserve.decisions.apart import emptied, filled, held_apart
from edgeserve.decisions.boxes import BOXES
from edgeserve.decisions.classes import CLASSES
from edgeserve.decisions.frames import FRAMES
from edgeserve.decisions.pixels import DEPTHS, MASKS
from edgeserve.decisions.spans import SPANS
from edgeserve.decisions.texts import POSITIONS, SPOKEN
from edgeserve.decisions.units import DECIDED_MARGIN, Figures, Kind, Rule, Units, all_flip
from edgeserve.errors import ProcessingError
from edgeserve.types.processing import Detect, Processing
from edgeserve.types.records import (
    Classification,
    Depth,
    Detection,
    Embedding,
    Record,
    Segmentation,
    Text,
    Tokens,
    Voice,
)
from edgeserve.types.words import Task

__all__ = [
    "DECIDED_MARGIN",
    "RECORDS",
    "Figures",
    "Rule",
    "Units",
    "compare",
    "decided",
    "describe",
    "emptied",
    "figures_of",
    "filled",
    "gap",
    "held_apart",
    "is_many",
    "margin",
    "rule_of",
    "same",
    "same_top",
    "unit_of",
]

#: The record that each task decides in; "tensors" has none.
RECORDS: dict[Task, type[Record]] = {
    "image-classification": Classification,
    "text-classification": Classification,
    "audio-classification": Classification,
    "object-detection": Detection,
    "image-segmentation": Segmentation,
    "depth-estimation": Depth,
    "feature-extraction": Embedding,
    "token-classification": Tokens,
    "automatic-speech-recognition": Text,
    "voice-activity": Voice,
    "text-generation": Text,
}
_KINDS: dict[type, Kind] = {
    Classification: CLASSES,
    Detection: BOXES,
    Segmentation: MASKS,
    Depth: DEPTHS,
    Tokens: SPANS,
    Text: POSITIONS,
    Voice: FRAMES,
}


def rule_of(task: Task, processing: Processing) -> Rule:
    """How decisions of a model are compared.

    Args:
        task: The model's; the ``tensors`` task has no decisions, and its rule is never used.
        processing: Its packaged processing: a detector's step names the threshold.
    """
    steps = [step for step in processing.outputs if isinstance(step, Detect)]
    threshold = steps[0].threshold if steps else 0.0
    return Rule(task, DECIDED_MARGIN.get(task, 0.0), threshold)


def compare(
    rule: Rule, reference: Record, answer: Record | None, sure: float | None = None
) -> Units:
    """Count one input's decisions, and how many of them the answer turns over.

    Args:
        rule: See `rule_of`.
        reference: What the reference decided.
        answer: What the artifact decided; all flips where it is None, or no such record.
        sure: Margin from which a decision counts as decided; None: the task's own.

    Raises:
        ProcessingError: EDGE-PROCESS-013, an embedding, which decides nothing alone.
    """
    kind = _kind(reference, rule)
    limit = rule.sure if sure is None else sure
    if not isinstance(answer, type(reference)):
        return all_flip(kind.compare(rule, reference, reference, limit))
    return kind.compare(rule, reference, answer, limit)


def margin(record: Record, rule: Rule | None = None) -> float | None:
    """How far a record is from flipping: the margin of its surest decision.

    Classification: probability of the best class minus that of the second. A record that keeps its
    best class only gets the least that can be: ``2 * score - 1``, at least 0, since probabilities
    sum to 1. Of boxes it is the best score above the threshold, 0 where there is no box.

    Args:
        record: Of any task.
        rule: See `rule_of`; None: that of a detector whose threshold is 0.

    Returns:
        The margin; None for an embedding, which has one only among others.
    """
    if isinstance(record, Embedding):
        return None
    rule = rule or _bare(record)
    return _kind(record, rule).margin(rule, record)


def decided(record: Record, rule: Rule | None = None) -> bool:
    """Whether any decision is sure enough that a flip is harm (`DECIDED_MARGIN`).

    An embedding alone decides nothing.
    """
    rule = rule or _bare(record)
    sure = margin(record, rule)
    return sure is not None and sure >= rule.sure


def same(reference: Record, answer: Record, rule: Rule | None = None) -> bool:
    """Whether no decision flips; of classifications, whether the best class is the same.

    Raises:
        ProcessingError: EDGE-PROCESS-013, one is an embedding, or they are of different tasks.
    """
    _check_pair(reference, answer)
    return compare(rule or _bare(reference), reference, answer).flips == 0


def same_top(reference: Record, answer: Record, k: int = 5) -> bool:
    """Whether the best ``k`` classes of two classifications are the same, in any order.

    Compared by index where both know them, else by label. Where one of the records keeps fewer than
    ``k``, as many as both keep.

    Raises:
        ProcessingError: EDGE-PROCESS-013, one is no classification.
    """
    for record in (reference, answer):
        if not isinstance(record, Classification):
            raise _refused(record, "a Classification")
    assert isinstance(reference, Classification)
    assert isinstance(answer, Classification)
    return classes.same_top(reference, answer, k)


def gap(rule: Rule, reference: Record | None, answer: Record | None) -> float:
    """How far an answer moves the reference's decisions, in the measure of margins.

    Largest difference of a score, over what both have; of pixels see ``docs/tasks.md``. 0 where
    there is nothing to compare, and for embeddings.
    """
    if reference is None or isinstance(reference, Embedding):
        return 0.0
    if not isinstance(answer, type(reference)):
        return 0.0
    return _kind(reference, rule).gap(rule, reference, answer)


def describe(record: Record) -> str:
    """A decision in a few words for people: "Egyptian cat 0.83", "vector of 384"."""
    if isinstance(record, Embedding):
        return f"vector of {record.vector.size}"
    return _KINDS[type(record)].describe(record)


def is_many(task: Task) -> bool:
    """Whether a record of the task holds many decisions, each for itself."""
    return RECORDS.get(task) not in (None, Classification, Embedding)


def unit_of(task: Task) -> str:
    """What is counted: "inputs", "boxes", "pixels", ..."""
    record = RECORDS.get(task)
    return _KINDS[record].unit if record in _KINDS else "inputs"


def figures_of(rule: Rule) -> Figures | None:
    """Gathers the task's own figures over all inputs; None where it has none."""
    record = RECORDS.get(rule.task)
    if record not in _KINDS:
        return None
    make = (SPOKEN if rule.task == "automatic-speech-recognition" else _KINDS[record]).figures
    return make(rule) if make else None


def _kind(record: Record, rule: Rule) -> Kind:
    if isinstance(record, Text) and rule.task == "automatic-speech-recognition":
        return SPOKEN
    if (kind := _KINDS.get(type(record))) is None:
        raise _refused(record, "a record that decides by itself")
    return kind


def _bare(record: Record) -> Rule:
    """The rule of a record of which nothing else is known."""
    task = next(task for task, kind in RECORDS.items() if isinstance(record, kind))
    return rule_of("text-generation" if isinstance(record, Text) else task, Processing())


def _check_pair(reference: Record, answer: Record) -> None:
    for record in (reference, answer):
        if isinstance(record, Embedding):
            raise _refused(record, "a record that decides by itself")
    if type(reference) is not type(answer):
        raise _refused(answer, f"a {type(reference).__name__}")


def _refused(record: Record, wanted: str) -> ProcessingError:
    alone = isinstance(record, Embedding)
    return ProcessingError(
        "EDGE-PROCESS-013",
        "decision",
        wanted=wanted,
        got="one Embedding, which decides nothing alone" if alone else f"a {type(record).__name__}",
        hint="compare the nearest neighbours in a set of at least three (edgeserve.neighbours)"
        if alone
        else "compare records of one task",
    )
