"""Decisions counted: flips, raw and where the reference was sure, and the worst inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeserve import decisions
from edgeserve.decisions import DECIDED_MARGIN
from edgeserve.types.base import Number, number, plain
from edgeserve.types.records import Classification, Record
from edgeserve.types.reports import DecisionStats, Limits, Rate, WorstInput
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.words import Task
from edgeserve.validate.bounds import minimum_harm, rate
from edgeserve.validate.verdict import more_groups

__all__ = ["WORST", "Tally", "score_gap", "worst_tensors"]

#: How many worst inputs a report shows.
WORST = 12
_NO_DECISION = "no decision"


def score_gap(reference: Record | None, answer: Record | None) -> float:
    """Largest difference between the scores of classes that both records keep; 0 where none."""
    if not isinstance(reference, Classification) or not isinstance(answer, Classification):
        return 0.0
    wanted, got = _scores(reference), _scores(answer)
    return max((abs(wanted[c] - got[c]) for c in wanted.keys() & got.keys()), default=0.0)


def _scores(record: Classification) -> dict[int | str, float]:
    if record.indexes:
        scores = (score for _, score in record.top)
        return dict(zip(record.indexes, scores, strict=True))
    return dict(record.top)


@dataclass(frozen=True)
class _Row:
    sample: Sample
    stored: StoredAnswer
    answer: Record | None
    flipped: bool
    decided: bool


class Tally:
    """Compares an artifact's decisions with the reference's, one input after the other."""

    def __init__(self, task: Task) -> None:
        self._task: Task = task
        self._rows: list[_Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """Count one input. No answer where the reference has one is a flip."""
        if stored.record is None:
            return
        flipped = answer is None or not decisions.same(stored.record, answer)
        margin = -1.0 if stored.margin is None else plain(stored.margin)
        decided = margin >= DECIDED_MARGIN[self._task]
        self._rows.append(_Row(sample, stored, answer, flipped, decided))

    def decided(self) -> Rate:
        """Flips where the reference was sure: what is judged."""
        return rate((row.sample.group, row.flipped) for row in self._rows if row.decided)

    def stats(self, limits: Limits) -> DecisionStats:
        """All figures."""
        decided = self.decided()
        return DecisionStats(
            task=self._task,
            inputs=len(self._rows),
            groups=len({row.sample.group for row in self._rows}),
            raw=rate((row.sample.group, row.flipped) for row in self._rows),
            decided=decided,
            top5=self._top5(),
            minimum_harm=minimum_harm(plain(decided.n_eff)),
            more_groups=more_groups(decided, limits),
        )

    def _top5(self) -> Rate | None:
        """Inputs whose best five classes are others, where the reference tells them."""
        known = [row for row in self._rows if row.stored.scored and _keeps_several(row.stored)]
        if not known:
            return None
        return rate((row.sample.group, _other_top(row)) for row in known)

    def drift(self) -> Number | None:
        """Largest difference of the best class's score, where the reference told its own."""
        gaps = [
            abs(wanted.score - row.answer.score)
            for row in self._rows
            if row.stored.scored and not row.flipped
            if isinstance(wanted := row.stored.record, Classification)
            if isinstance(row.answer, Classification)
        ]
        return number(max(gaps)) if gaps else None

    def worst(self, differences: dict[str, float]) -> tuple[WorstInput, ...]:
        """The worst inputs: flips that are harm, other flips, then the largest differences.

        Args:
            differences: Largest relative tensor difference by sample id, where there is one.
        """
        rows = sorted(self._rows, key=lambda row: self._badness(row, differences), reverse=True)
        return tuple(
            WorstInput(
                id=row.sample.id,
                path=row.sample.path if row.sample.row is None else None,
                reference=_words(row.stored),
                answer=decisions.describe(row.answer) if row.answer else _NO_DECISION,
                margin=row.stored.margin,
                difference=number(differences.get(row.sample.id, 0.0)),
                flipped=row.flipped,
            )
            for row in rows[:WORST]
        )

    def _badness(self, row: _Row, differences: dict[str, float]) -> tuple[bool, bool, float, float]:
        margin = 0.0 if row.stored.margin is None else plain(row.stored.margin)
        apart = differences.get(row.sample.id, 0.0)
        return row.flipped and row.decided, row.flipped, margin if row.flipped else 0.0, apart


def worst_tensors(
    samples: Sequence[Sample], differences: Mapping[str, float]
) -> tuple[WorstInput, ...]:
    """The inputs with the largest tensor differences, for a task without decisions."""
    known = [sample for sample in samples if sample.id in differences]
    known.sort(key=lambda sample: differences[sample.id], reverse=True)
    return tuple(
        WorstInput(
            id=sample.id,
            path=sample.path if sample.row is None else None,
            reference=_NO_DECISION,
            answer=_NO_DECISION,
            margin=None,
            difference=number(differences[sample.id]),
            flipped=False,
        )
        for sample in known[:WORST]
    )


def _keeps_several(stored: StoredAnswer) -> bool:
    return isinstance(stored.record, Classification) and len(stored.record.top) > 1


def _other_top(row: _Row) -> bool:
    reference, answer = row.stored.record, row.answer
    if reference is None or answer is None:
        return True
    return not decisions.same_top(reference, answer)


def _words(stored: StoredAnswer) -> str:
    if stored.record is None:
        return _NO_DECISION
    if not stored.scored and isinstance(stored.record, Classification):
        return stored.record.label
    return decisions.describe(stored.record)
