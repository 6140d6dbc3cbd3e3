"""F1 of spans.

Source:
    E. F. Tjong Kim Sang, F. De Meulder, "Introduction to the CoNLL-2003 shared task", CoNLL 2003: a
    span is right where its start, end and label are.
"""

from __future__ import annotations

from edgeserve.tasks.metrics import F1Row, RowFigures, TaskMetrics, f1
from edgeserve.tasks.token_classification import Tokens, TrueSpans
from edgeserve.tasks.token_classification.compare import span_key
from edgeserve.types.records import Record

__all__ = ["METRICS", "span_row"]


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
