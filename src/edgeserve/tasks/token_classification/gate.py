"""Spans: F1, what a user's reference may answer, and true spans.

Source:
    E. F. Tjong Kim Sang, F. De Meulder, "Introduction to the CoNLL-2003 shared task", CoNLL 2003: a
    span is right where its start, end and label are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from edgeserve.data.ground_truth import LabelSchema, TruthReader, bad_place, unknown_classes
from edgeserve.tasks.answers import Fields, field_answers
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.metrics import F1Row, RowFigures, TaskMetrics, f1
from edgeserve.tasks.token_classification import Span, Tokens, TrueSpans
from edgeserve.tasks.token_classification.device import span_key
from edgeserve.types.records import Record


def span_row(truth: TrueSpans, reference: Record | None, answer: Record | None) -> F1Row:
    """Spans of one text; a side that is no record of spans found none."""
    wanted = set(truth.spans)
    found = [
        set(map(span_key, each.spans)) if isinstance(each, Tokens) else set()
        for each in (reference, answer)
    ]
    return F1Row(
        (len(wanted & found[0]), len(wanted & found[1])),
        (len(wanted) + len(found[0]), len(wanted) + len(found[1])),
    )


def _against(reference: Tokens, answer: Tokens | None) -> F1Row:
    return span_row(TrueSpans(tuple(map(span_key, reference.spans))), answer, None)


METRICS = TaskMetrics(
    figures=lambda rule: RowFigures(_against, f1, ("f1",)),
    titles={"f1": "F1 of spans"},
    row=lambda truth, place, reference, answer: span_row(truth, reference, answer),
    read=f1,
)


def _tokens(fields: Fields, labels: Sequence[str]) -> Tokens:
    spans = [each if isinstance(each, Span) else _span(each) for each in fields["spans"]]
    return Tokens(spans=tuple(sorted(spans, key=lambda span: (span.start, span.end))))


def _span(given: Any) -> Span:
    names = ("start", "end", "label", "score")
    start, end, label, score = [given[n] for n in names] if isinstance(given, Mapping) else given
    return Span(start=int(start), end=int(end), label=str(label), score=float(score))


def _complete(rule: DecisionRule, record: Tokens, program: Tokens) -> Tokens:
    unsure = program.unsure if record.unsure is None else record.unsure
    return msgspec.structs.replace(record, unsure=unsure)


ANSWERS = field_answers(
    Tokens,
    "spans: a list of (start, end, label, score)",
    _tokens,
    shares=lambda record: ([span.score for span in record.spans],),
    complete=_complete,
)


def _true_spans(
    given: Sequence[tuple[int, int, str | int]], known: LabelSchema, where: str, length: int
) -> TrueSpans:
    """Labelled spans of a text of so many characters.

    Raises:
        DataError: EDGE-DATA-026, one is empty or lies beyond the text, or is there twice; -023.
    """
    unknown = [label for *_, label in given if known.named(label) is None]
    if unknown:
        raise unknown_classes(known, where, unknown)
    for start, end, _ in given:
        if not 0 <= start < end <= length:
            wanted = f"0 <= start < end <= {length}, the text's length in characters"
            raise bad_place(where, wanted, f"a span from {start} to {end}")
    found = sorted((start, end, known.named(label) or "") for start, end, label in given)
    if len(set(found)) < len(found):
        raise bad_place(where, "each span once", "one that is there twice")
    return TrueSpans(spans=tuple(found))


TRUTH = TruthReader(
    key="spans",
    type=list[tuple[int, int, str | int]],
    from_line=lambda given, line: _true_spans(given, line.known, line.where, len(line.text)),
)
