"""Answers that decide many things at once: boxes, pixels, frames, spans or tokens, counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from edgeserve import decisions
from edgeserve.decisions import Rule
from edgeserve.decisions.boxes import shown
from edgeserve.decisions.texts import edits
from edgeserve.types.base import Number, number, plain
from edgeserve.types.records import Detection, Record, Text
from edgeserve.types.reports import Mark, MetricStats
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.validate.paired import Cost, metric_stats
from edgeserve.validate.tally import NO_DECISION, Row, Tally

__all__ = ["UnitTally"]

#: Boxes of one side that a report shows.
_BOXES = 20


class UnitTally(Tally):
    """Each input decides many things: boxes, pixels, frames, spans or tokens.

    Records are not kept, which may be large, but for the surest boxes.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.task)
        self._rule = rule
        self._gathered = decisions.figures_of(rule)
        self._rows: list[Row] = []
        self._drift: float | None = None
        self._costs: list[Cost] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """See `Tally.add`."""
        record = stored.record
        if record is None:
            return
        answer = answer if isinstance(answer, type(record)) else None
        margin = None if stored.margin is None else plain(stored.margin)
        units = decisions.compare(self._rule, record, answer)
        told = decisions.describe(answer) if answer else NO_DECISION
        marks = (*_marks(record, "reference"), *_marks(answer, "answer"))
        self._rows.append(Row(sample, decisions.describe(record), told, margin, units, marks))
        if self._gathered is not None:
            self._gathered.add(record, answer)
        self._costs += _word_errors(self._rule, sample, record, answer)
        if stored.scored and answer is not None:
            self._drift = max(self._drift or 0.0, decisions.gap(self._rule, record, answer))

    def rows(self) -> Sequence[Row]:
        """See `Tally.rows`."""
        return self._rows

    def metrics(self) -> tuple[MetricStats, ...]:
        """See `Tally.metrics`."""
        found = metric_stats("wer", self._costs)
        return (found,) if found else ()

    def _figures(self) -> dict[str, float]:
        return self._gathered.value() if self._gathered is not None else {}

    def drift(self) -> Number | None:
        """Largest change of a margin; None for depths, whose every error is looked at."""
        return number(self._drift) if self._drift is not None and self._rule.sure else None


def _word_errors(
    rule: Rule, sample: Sample, record: Record, answer: Record | None
) -> Iterator[Cost]:
    """Of speech whose transcript is known."""
    words = (sample.label or "").split()
    if rule.task != "automatic-speech-recognition" or not words or not isinstance(record, Text):
        return
    got = answer.text if isinstance(answer, Text) else ""
    errors = [float(edits(words, text.split())) for text in (record.text, got)]
    yield Cost(sample.group, errors[0], errors[1], len(words))


def _marks(record: Record | None, side: Literal["reference", "answer"]) -> Iterator[Mark]:
    """The surest boxes of a detection; none of anything else."""
    if not isinstance(record, Detection):
        return
    for i in sorted(shown(record), key=lambda i: -float(record.scores[i]))[:_BOXES]:
        x0, y0, x1, y1 = (float(edge) for edge in record.boxes[i])
        yield Mark(side, (x0, y0, x1, y1), record.labels[i], number(float(record.scores[i])))
