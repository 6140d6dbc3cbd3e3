"""Decisions counted: flips, raw and where the reference was sure, and the worst inputs.

A `Tally` holds one row an input. Which rows there are is the task's business: a classification
decides each input by itself (`EachTally`), an answer of boxes, pixels or tokens decides many things
at once (`edgeserve.validate.many`), an embedding decides among all the others
(`edgeserve.validate.neighbourhood`), which is known when all of them have been seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeserve import decisions
from edgeserve.decisions import DECIDED_MARGIN, Units
from edgeserve.types.base import Number, number, plain
from edgeserve.types.records import Classification, Record
from edgeserve.types.reports import (
    DecisionStats,
    EmbeddingStats,
    Limits,
    Mark,
    MetricStats,
    Rate,
    WorstInput,
)
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.words import Task
from edgeserve.validate.bounds import minimum_harm, rate
from edgeserve.validate.labels import Marked
from edgeserve.validate.verdict import more_groups

__all__ = [
    "NO_DECISION",
    "WORST",
    "EachTally",
    "Row",
    "Tally",
    "one_decision",
    "shortened",
    "worst_tensors",
]

#: How many worst inputs a report shows.
WORST = 12
NO_DECISION = "no decision"
_TEXT = 160


@dataclass(frozen=True)
class Row:
    """One input's decisions.

    Attributes:
        sample: The input.
        reference: The reference's decision in words.
        answer: The artifact's.
        margin: How sure the reference was; None where that is not known.
        units: The decisions counted.
        marks: Boxes of both, where decisions are boxes.
    """

    sample: Sample
    reference: str
    answer: str
    margin: float | None
    units: Units
    marks: tuple[Mark, ...] = ()

    @property
    def flipped(self) -> bool:
        """A decision differs."""
        return self.units.flips > 0

    @property
    def decided(self) -> bool:
        """The reference was sure of a decision."""
        return self.units.decided > 0

    @property
    def badness(self) -> tuple[float, float, float]:
        """Share of clear decisions that flip, then of all, then how sure the reference was."""
        units, margin = self.units, self.margin or 0.0
        harm, raw = units.decided_flips / max(units.decided, 1), units.flips / max(units.n, 1)
        return harm, raw, margin if self.flipped else 0.0


def one_decision(*, flipped: bool, decided: bool) -> Units:
    """An input that decides one thing."""
    return Units(1, int(flipped), int(decided), int(flipped and decided))


class Tally(ABC):
    """Compares an artifact's decisions with the reference's.

    Args:
        task: Whose decisions.
    """

    def __init__(self, task: Task) -> None:
        self._task: Task = task

    @abstractmethod
    def __len__(self) -> int:
        """How many inputs have been added."""

    @abstractmethod
    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """Count one input. No answer where the reference has one is a flip.

        Args:
            sample: The input; where it is a text, with that text.
            stored: What the reference answered; passed over where it decided nothing.
            answer: What the artifact answered.
        """

    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """What each input came to, in the order they were added."""

    def drift(self) -> Number | None:
        """Largest difference of a score from the reference's own; None where it told none."""
        return None

    def _top5(self) -> Rate | None:
        """Inputs whose best five are others; None where there is no such thing."""
        return None

    def _figures(self) -> dict[str, float]:
        """The task's own figures over all inputs."""
        return {}

    def _embedding(self) -> EmbeddingStats | None:
        return None

    def marked(self, labels: Sequence[str]) -> list[Marked]:
        """Who was right on the inputs whose true label is one of the model's; of classifications.

        Args:
            labels: The model's, by index; none: classes are called by their number.
        """
        return []

    def metrics(self) -> tuple[MetricStats, ...]:
        """The task's metrics on inputs whose true label is known."""
        return ()

    def decided(self) -> Rate:
        """Flips where the reference was sure: what is judged."""
        return rate(
            (row.sample.group, row.units.decided_flips, row.units.decided) for row in self.rows()
        )

    def stats(self, limits: Limits) -> DecisionStats:
        """All figures."""
        rows, decided = self.rows(), self.decided()
        return DecisionStats(
            task=self._task,
            inputs=len(rows),
            groups=len({row.sample.group for row in rows}),
            raw=rate((row.sample.group, row.units.flips, row.units.n) for row in rows),
            decided=decided,
            top5=self._top5(),
            minimum_harm=minimum_harm(plain(decided.n_eff)),
            more_groups=more_groups(decided, limits),
            embedding=self._embedding(),
            unit=decisions.unit_of(self._task),
            figures={name: number(value) for name, value in self._figures().items()},
        )

    def worst(self, differences: Mapping[str, float]) -> tuple[WorstInput, ...]:
        """The worst inputs: flips that are harm, other flips, then the largest differences.

        Args:
            differences: Largest relative tensor difference by sample id, where there is one.
        """

        def badness(row: Row) -> tuple[tuple[float, float, float], float]:
            return row.badness, differences.get(row.sample.id, 0.0)

        rows = sorted(self.rows(), key=badness, reverse=True)
        return tuple(_worst(row, differences) for row in rows[:WORST])


def _worst(row: Row, differences: Mapping[str, float]) -> WorstInput:
    sample = row.sample
    return WorstInput(
        id=sample.id,
        path=sample.path if sample.row is None else None,
        reference=row.reference,
        answer=row.answer,
        margin=None if row.margin is None else number(row.margin),
        difference=number(differences.get(sample.id, 0.0)),
        flipped=row.flipped,
        text=None if sample.text is None else shortened(sample.text),
        marks=row.marks,
    )


def shortened(text: str) -> str:
    """A text in one line, cut at its end."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[: _TEXT - 1]}…"


@dataclass(frozen=True)
class _Pair:
    sample: Sample
    stored: StoredAnswer
    answer: Record | None


class EachTally(Tally):
    """Each input decides by itself, as classifications do."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._pairs: list[_Pair] = []
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """See `Tally.add`."""
        if stored.record is None:
            return
        margin = None if stored.margin is None else plain(stored.margin)
        self._pairs.append(_Pair(sample, stored, answer))
        self._rows.append(
            Row(
                sample,
                _words(stored),
                decisions.describe(answer) if answer else NO_DECISION,
                margin,
                one_decision(
                    flipped=answer is None or not decisions.same(stored.record, answer),
                    decided=margin is not None and margin >= DECIDED_MARGIN[self._task],
                ),
            )
        )

    def rows(self) -> Sequence[Row]:
        """See `Tally.rows`."""
        return self._rows

    def marked(self, labels: Sequence[str]) -> list[Marked]:
        """See `Tally.marked`."""
        known = set(labels)
        return [
            Marked(pair.sample.group, _right(pair.stored.record, label), _right(pair.answer, label))
            for pair in self._pairs
            if (label := pair.sample.label) is not None
            and (label in known if labels else label.isdecimal())
        ]

    def _top5(self) -> Rate | None:
        """Inputs whose best five classes are others, where the reference tells them."""
        known = [pair for pair in self._pairs if _keeps_several(pair.stored)]
        if not known:
            return None
        return rate((pair.sample.group, _other_top(pair)) for pair in known)

    def drift(self) -> Number | None:
        """Largest difference of the best class's score, where the reference told its own."""
        gaps = [
            abs(wanted.score - pair.answer.score)
            for pair, row in zip(self._pairs, self._rows, strict=True)
            if pair.stored.scored and not row.flipped
            if isinstance(wanted := pair.stored.record, Classification)
            if isinstance(pair.answer, Classification)
        ]
        return number(max(gaps)) if gaps else None


def worst_tensors(
    samples: Sequence[Sample], differences: Mapping[str, float]
) -> tuple[WorstInput, ...]:
    """The inputs with the largest tensor differences, for a task without decisions."""
    known = [sample for sample in samples if sample.id in differences]
    known.sort(key=lambda sample: differences[sample.id], reverse=True)
    rows = [Row(s, NO_DECISION, NO_DECISION, None, Units(0, 0, 0, 0)) for s in known]
    return tuple(_worst(row, differences) for row in rows[:WORST])


def _right(record: Record | None, label: str) -> bool:
    return isinstance(record, Classification) and record.label == label


def _keeps_several(stored: StoredAnswer) -> bool:
    record = stored.record
    return stored.scored and isinstance(record, Classification) and len(record.top) > 1


def _other_top(pair: _Pair) -> bool:
    reference, answer = pair.stored.record, pair.answer
    if reference is None or answer is None:
        return True
    return not decisions.same_top(reference, answer)


def _words(stored: StoredAnswer) -> str:
    if stored.record is None:
        return NO_DECISION
    if not stored.scored and isinstance(stored.record, Classification):
        return stored.record.label
    return decisions.describe(stored.record)
