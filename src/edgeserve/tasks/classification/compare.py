"""Classifications compared: the best class."""

from __future__ import annotations

from collections import Counter

from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison
from edgeserve.tasks.classification import Classification

__all__ = ["COMPARISON", "margin", "same", "same_top", "score_gap"]


def margin(record: Classification) -> float:
    """Probability of the best class minus that of the second.

    A record that keeps its best class only gets the least that can be: ``2 * score - 1``, at least
    0, since probabilities sum to 1.
    """
    if len(record.top) > 1:
        return record.top[0][1] - record.top[1][1]
    return max(0.0, 2 * record.score - 1)


def same(reference: Classification, answer: Classification) -> bool:
    """Whether both have the same best class, by index where both know it, else by label."""
    if reference.index >= 0 and answer.index >= 0:
        return reference.index == answer.index
    return reference.label == answer.label


def same_top(reference: Classification, answer: Classification, k: int) -> bool:
    """Whether the best ``k`` classes are the same, in any order."""
    k = min(k, len(reference.top), len(answer.top))
    if reference.indexes and answer.indexes:
        return set(reference.indexes[:k]) == set(answer.indexes[:k])
    # Two classes may share a label, so that labels are counted.
    return Counter(_labels(reference, k)) == Counter(_labels(answer, k))


def score_gap(reference: Classification, answer: Classification) -> float:
    """Largest difference between the scores of classes that both records keep; 0 where none."""
    wanted, got = _scores(reference), _scores(answer)
    return max((abs(wanted[c] - got[c]) for c in wanted.keys() & got.keys()), default=0.0)


def _labels(record: Classification, k: int) -> list[str]:
    return [label for label, _ in record.top[:k]]


def _scores(record: Classification) -> dict[int | str, float]:
    if record.indexes:
        scores = (score for _, score in record.top)
        return dict(zip(record.indexes, scores, strict=True))
    return dict(record.top)


def _compare(
    rule: DecisionRule, reference: Classification, answer: Classification, sure: float
) -> DecisionCounts:
    flips, decided = not same(reference, answer), margin(reference) >= sure
    return DecisionCounts(1, int(flips), int(decided), int(flips and decided))


def _describe(record: Classification) -> str:
    return f"{record.label} {record.score:.2f}"


def _details(record: Classification) -> list[str]:
    """The further classes."""
    return [f"{score:.3f}  {label}" for label, score in record.top[1:]]


COMPARISON = RecordComparison(
    compare=_compare,
    margin=lambda rule, record: margin(record),
    gap=lambda rule, reference, answer: score_gap(reference, answer),
    describe=_describe,
    details=_details,
    class_of=lambda record: (record.index, record.label),
)
