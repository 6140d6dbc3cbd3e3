"""Decisions counted: flips, raw and where the reference was sure, and the worst inputs.

A `FlipCounter` holds one row an input. Which rows there are is the task's business: a
classification decides each input by itself (`SingleDecisionCounter`), an answer of boxes,
pixels, frames, spans or tokens decides many things at once (`MultiDecisionCounter`), an
embedding decides among all the others (`edgeserve.validate.flips.embeddings`), which is known
when all of them have been seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from edgeserve import tasks
from edgeserve.tasks import DecisionCounts, DecisionRule
from edgeserve.tasks.classification import Classification
from edgeserve.types.base import Number, number, plain
from edgeserve.types.records import Record
from edgeserve.types.reports import DecisionStats, EmbeddingStats, Limits, Mark, Rate, WorstInput
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.vocabulary import Task
from edgeserve.validate.stats.binomial import minimum_detectable_rate, rate
from edgeserve.validate.stats.paired_tests import LabelOutcome
from edgeserve.validate.verdict import more_groups

#: How many worst inputs a report shows.
WORST_INPUTS = 12
NO_DECISION = "no decision"
_MAX_TEXT = 160


@dataclass(frozen=True)
class DecisionRow:
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
    units: DecisionCounts
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


def one_decision(*, flipped: bool, decided: bool) -> DecisionCounts:
    """An input that decides one thing."""
    return DecisionCounts(1, int(flipped), int(decided), int(flipped and decided))


class FlipCounter(ABC):
    """Compares an artifact's decisions with the reference's.

    Args:
        task: Whose decisions.
    """

    def __init__(self, task: Task) -> None:
        self._task: Task = task
        self._rows: list[DecisionRow] = []

    def __len__(self) -> int:
        """How many inputs have been added."""
        return len(self._rows)

    @abstractmethod
    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """Count one input. No answer where the reference has one is a flip.

        Args:
            sample: The input; where it is a text, with that text.
            stored: What the reference answered; passed over where it decided nothing.
            answer: What the artifact answered.
        """

    def rows(self) -> Sequence[DecisionRow]:
        """What each input came to, in the order they were added."""
        return self._rows

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

    def marked(self, labels: Sequence[str]) -> list[LabelOutcome]:
        """Who was right on the inputs whose true label is one of the model's; of classifications.

        Args:
            labels: The model's, by index; none: classes are called by their number.
        """
        return []

    def decided(self) -> Rate:
        """Flips where the reference was sure: what is judged."""
        pairs = ((row.sample.group, row.units) for row in self.rows())
        return rate((group, units.decided_flips, units.decided) for group, units in pairs)

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
            minimum_harm=minimum_detectable_rate(plain(decided.n_eff)),
            more_groups=more_groups(decided, limits),
            embedding=self._embedding(),
            unit=tasks.unit_of(self._task),
            figures={name: number(value) for name, value in self._figures().items()},
        )

    def worst(self, differences: Mapping[str, float]) -> tuple[WorstInput, ...]:
        """The worst inputs: flips that are harm, other flips, then the largest differences.

        Args:
            differences: Largest relative tensor difference by sample id, where there is one.
        """

        def badness(row: DecisionRow) -> tuple[tuple[float, float, float], float]:
            return row.badness, differences.get(row.sample.id, 0.0)

        rows = sorted(self.rows(), key=badness, reverse=True)
        return tuple(_worst_input(row, differences) for row in rows[:WORST_INPUTS])


def _worst_input(row: DecisionRow, differences: Mapping[str, float]) -> WorstInput:
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


def shortened(text: str, longest: int = _MAX_TEXT) -> str:
    """A text in one line, cut at its end."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


class _Pair(NamedTuple):
    sample: Sample
    stored: StoredAnswer
    answer: Record | None


class SingleDecisionCounter(FlipCounter):
    """Each input decides by itself, as classifications do."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._pairs: list[_Pair] = []

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """See `FlipCounter.add`."""
        if stored.record is None:
            return
        margin = None if stored.margin is None else plain(stored.margin)
        self._pairs.append(_Pair(sample, stored, answer))
        words = tasks.describe(answer) if answer else NO_DECISION
        flipped = answer is None or not tasks.same(stored.record, answer)
        decided = margin is not None and margin >= tasks.sure_margin(self._task)
        units = one_decision(flipped=flipped, decided=decided)
        self._rows.append(DecisionRow(sample, _describe_reference(stored), words, margin, units))

    def marked(self, labels: Sequence[str]) -> list[LabelOutcome]:
        """See `FlipCounter.marked`."""
        known = set(labels)
        return [
            LabelOutcome(sample.group, _is_right(stored.record, label), _is_right(answer, label))
            for sample, stored, answer in self._pairs
            if (label := sample.label) is not None
            and (label in known if labels else label.isdecimal())
        ]

    def _top5(self) -> Rate | None:
        """Inputs whose best five classes are others, where the reference tells them."""
        known = [pair for pair in self._pairs if _has_top(pair.stored)]
        if not known:
            return None
        return rate((pair.sample.group, _top_differs(pair)) for pair in known)

    def drift(self) -> Number | None:
        """Largest difference of the best class's score, where the reference told its own."""
        gaps = [
            abs(wanted.score - scores[wanted.label])
            for pair in self._pairs
            if pair.stored.scored
            if isinstance(wanted := pair.stored.record, Classification)
            if isinstance(answer := pair.answer, Classification)
            if wanted.label in (scores := {**dict(answer.top), answer.label: answer.score})
        ]
        return number(max(gaps)) if gaps else None


def worst_tensors(
    samples: Sequence[Sample], differences: Mapping[str, float]
) -> tuple[WorstInput, ...]:
    """The inputs with the largest tensor differences, for a task without decisions."""
    known = [sample for sample in samples if sample.id in differences]
    known.sort(key=lambda sample: differences[sample.id], reverse=True)
    words, none = (NO_DECISION, NO_DECISION), DecisionCounts(0, 0, 0, 0)
    rows = (DecisionRow(sample, *words, None, none) for sample in known[:WORST_INPUTS])
    return tuple(_worst_input(row, differences) for row in rows)


def _is_right(record: Record | None, label: str) -> bool:
    return isinstance(record, Classification) and record.label == label


def _has_top(stored: StoredAnswer) -> bool:
    record = stored.record
    return stored.scored and isinstance(record, Classification) and len(record.top) > 1


def _top_differs(pair: _Pair) -> bool:
    reference, answer = pair.stored.record, pair.answer
    return reference is None or answer is None or not tasks.same_top(reference, answer)


def _describe_reference(stored: StoredAnswer) -> str:
    if stored.record is None:
        return NO_DECISION
    if not stored.scored and isinstance(stored.record, Classification):
        return stored.record.label
    return tasks.describe(stored.record)


#: Boxes of one side that a report shows.
_MAX_BOXES = 20


class MultiDecisionCounter(FlipCounter):
    """Each input decides many things: boxes, pixels, frames, spans or tokens.

    Records are not kept, which may be large, but for the surest boxes.
    """

    def __init__(self, rule: DecisionRule) -> None:
        super().__init__(rule.task)
        self._rule = rule
        self._gathered = tasks.metrics_for(rule)
        self._drift: float | None = None

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """See `FlipCounter.add`."""
        record = stored.record
        if record is None:
            return
        answer = answer if isinstance(answer, type(record)) else None
        margin = None if stored.margin is None else plain(stored.margin)
        units = tasks.compare(self._rule, record, answer)
        words = tasks.describe(record), tasks.describe(answer) if answer else NO_DECISION
        marks = (*_marks(record, "reference"), *_marks(answer, "answer"))
        self._rows.append(DecisionRow(sample, *words, margin, units, marks))
        if self._gathered is not None:
            self._gathered.add(record, answer)
        if stored.scored and answer is not None:
            self._drift = max(self._drift or 0.0, tasks.gap(self._rule, record, answer))

    def _figures(self) -> dict[str, float]:
        return self._gathered.value() if self._gathered is not None else {}

    def drift(self) -> Number | None:
        """Largest change of a margin; None for depths, whose every error is looked at."""
        return number(self._drift) if self._drift is not None and self._rule.sure else None


def _marks(record: Record | None, side: Literal["reference", "answer"]) -> Iterator[Mark]:
    """The surest boxes to draw; none where an answer has no place in the picture."""
    if record is None:
        return
    boxes = sorted(tasks.marks(record), key=lambda box: -box[2])
    for corners, label, score in boxes[:_MAX_BOXES]:
        yield Mark(side, corners, label, number(score))
