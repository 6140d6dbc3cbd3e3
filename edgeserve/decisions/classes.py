"""Decisions: how sure a record is, and whether two records decide the same.

What the gate counts, the Wrapper proves and a report shows. Classifications decide one by one. What
an embedding decides is its nearest neighbour in a set: `edgeserve.neighbours` says which, and by
how much; alone it has neither margin nor sameness. The records of other tasks exist
(`edgeserve.types.records`) and are refused by code until their rules are.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgeserve.errors import ProcessingError
from edgeserve.types.records import Classification, Embedding, Record
from edgeserve.types.words import Task

__all__ = ["DECIDED_MARGIN", "decided", "describe", "margin", "same", "same_top"]

#: The margin from which a decision counts as decided: flipping it is harm. Of probabilities; for
#: feature-extraction of cosines, by which the nearest neighbour is nearer than the next.
DECIDED_MARGIN: Final[dict[Task, float]] = {
    "image-classification": 0.05,
    "text-classification": 0.05,
    "audio-classification": 0.05,
    "feature-extraction": 0.01,
}


def margin(record: Record) -> float | None:
    """How far a decision is from flipping, in the task's own measure.

    Classification: probability of the best class minus that of the second. A record that keeps its
    best class only gets the least that can be: ``2 * score - 1``, at least 0, since probabilities
    sum to 1.

    Returns:
        The margin; None for an embedding, which has one only among others.

    Raises:
        ProcessingError: EDGE-PROCESS-013, the record's task is not handled in this version.
    """
    if isinstance(record, Embedding):
        return None
    record = _classification(record)
    if len(record.top) > 1:
        return record.top[0][1] - record.top[1][1]
    return max(0.0, 2 * record.score - 1)


def decided(record: Record) -> bool:
    """Whether the decision is sure enough that a flip is harm (`DECIDED_MARGIN`).

    An embedding alone decides nothing.

    Raises:
        ProcessingError: EDGE-PROCESS-013, the record's task is not handled in this version.
    """
    sure = margin(record)
    return sure is not None and sure >= DECIDED_MARGIN["image-classification"]


def same(reference: Record, answer: Record) -> bool:
    """Whether both have the same best class, by index where both know it, else by label.

    Raises:
        ProcessingError: EDGE-PROCESS-013, the records' task is not handled in this version.
    """
    reference, answer = _classification(reference), _classification(answer)
    if reference.index >= 0 and answer.index >= 0:
        return reference.index == answer.index
    return reference.label == answer.label


def same_top(reference: Record, answer: Record, k: int = 5) -> bool:
    """Whether the best ``k`` classes are the same, in any order.

    Compared by index where both know them, else by label. Where one of the records keeps fewer than
    ``k``, as many as both keep.

    Raises:
        ProcessingError: EDGE-PROCESS-013, the records' task is not handled in this version.
    """
    reference, answer = _classification(reference), _classification(answer)
    k = min(k, len(reference.top), len(answer.top))
    if reference.indexes and answer.indexes:
        return set(reference.indexes[:k]) == set(answer.indexes[:k])
    # Two classes may share a label, so that labels are counted.
    return Counter(_labels(reference, k)) == Counter(_labels(answer, k))


def describe(record: Record) -> str:
    """A decision in a few words for people: "Egyptian cat 0.83", "vector of 384".

    Raises:
        ProcessingError: EDGE-PROCESS-013, the record's task is not handled in this version.
    """
    if isinstance(record, Embedding):
        return f"vector of {record.vector.size}"
    record = _classification(record)
    return f"{record.label} {record.score:.2f}"


def _labels(record: Classification, k: int) -> list[str]:
    return [label for label, _ in record.top[:k]]


def _classification(record: Record) -> Classification:
    if isinstance(record, Classification):
        return record
    alone = isinstance(record, Embedding)
    raise ProcessingError(
        "EDGE-PROCESS-013",
        "decision",
        wanted="a Classification",
        got="one Embedding, which decides nothing alone"
        if alone
        else f"{type(record).__name__}, which is not handled in this version",
        hint="compare the nearest neighbours in a set of at least three (edgeserve.neighbours)"
        if alone
        else "compare such outputs as tensors: declare the task 'tensors'",
    )
