"""Texts: tokens that agree with the reference's, and what a user's reference may answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgeserve.tasks.answers import Fields, field_answers
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.metrics import RatioFigure, TaskMetrics
from edgeserve.tasks.text_generation import Text


def _agreement(reference: Text, answer: Text | None) -> tuple[float, float]:
    pairs = zip(reference.tokens, answer.tokens if answer else (), strict=False)
    return sum(wanted == got for wanted, got in pairs), len(reference.tokens)


METRICS = TaskMetrics(figures=lambda rule: RatioFigure("agreement", _agreement))


def _text(fields: Fields, labels: Sequence[str]) -> Text:
    return Text(
        tokens=tuple(int(each) for each in fields["tokens"]),
        text=str(fields.get("text", "")),
        margins=tuple(float(each) for each in fields.get("margins", ())),
    )


def _complete(rule: DecisionRule, record: Text, program: Text) -> Text:
    """Margins where there are as many tokens; gaps, which are counted between them, of the same."""
    margins, unsure = record.margins, record.unsure
    if not margins and len(record.tokens) == len(program.tokens):
        margins = program.margins
    if unsure is None and record.tokens == program.tokens:
        unsure = program.unsure
    return msgspec.structs.replace(record, margins=margins, unsure=unsure)


ANSWERS = field_answers(
    Text,
    "tokens and, optionally, text and margins",
    _text,
    shares=lambda record: (record.margins,),
    complete=_complete,
    own=lambda record, scored: record.tokens,
)
