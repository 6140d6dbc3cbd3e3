"""spans/1: labelled spans, read from scores a token and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.processing.arrays import check_numbers, softmax
from edgeserve.processing.outputs.places import leads, position_reader, position_scores
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader, labels_error
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.token_classification import SCHEMA, Span, Spans, Tokens


def _span_margin(span: Span) -> float:
    """The least that the lead over the second label can be: probabilities sum to 1."""
    return max(0.0, 2 * span.score - 1)


def span_key(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.label


def _compare(rule: DecisionRule, reference: Tokens, answer: Tokens, sure: float) -> DecisionCounts:
    """Each span of the reference, and each that the answer alone has.

    An invented span is a clear one where the answer is sure of it, or the reference is sure of each
    of its tokens.
    """
    wanted, got = {span_key(s) for s in reference.spans}, {span_key(s) for s in answer.spans}
    lost = [span_key(span) not in got for span in reference.spans]
    clear = [_span_margin(span) >= sure for span in reference.spans]
    invented = [s for s in answer.spans if span_key(s) not in wanted and not _touches(s, reference)]
    knows_unsure = reference.unsure is not None and sure <= SCHEMA.sure
    clear_extra = sum(
        _span_margin(span) >= sure or (knows_unsure and not _doubtful(span, reference))
        for span in invented
    )
    figures = f1(len(wanted), len(got), len(wanted & got))
    return count_flips(lost, clear, figures, extra=len(invented), clear_extra=clear_extra)


def _touches(span: Span, reference: Tokens) -> bool:
    """A span of the reference of the same label overlaps it: that one is counted already."""
    return any(
        other.label == span.label and span.start < other.end and other.start < span.end
        for other in reference.spans
    )


def _doubtful(span: Span, reference: Tokens) -> bool:
    """The reference is not sure of a token in it."""
    return any(span.start < end and start < span.end for start, end in reference.unsure or ())


def f1(wanted: int, got: int, both: int) -> dict[str, float]:
    return {"f1": 2 * both / (wanted + got)} if wanted + got else {}


def _gap(rule: DecisionRule, reference: Tokens, answer: Tokens) -> float:
    """Largest change of a span's margin, of spans that both have."""
    got = {span_key(span): span for span in answer.spans}
    pairs = [(span, got[span_key(span)]) for span in reference.spans if span_key(span) in got]
    return max((abs(_span_margin(a) - _span_margin(b)) for a, b in pairs), default=0.0)


def _describe(record: Tokens) -> str:
    if not record.spans:
        return "no span"
    named = [f"{span.label} {span.start}-{span.end}" for span in record.spans[:4]]
    return ", ".join(named) + (", ..." if len(record.spans) > 4 else "")


COMPARISON = RecordComparison(
    compare=_compare,
    margin=lambda rule, record: max(map(_span_margin, record.spans), default=0.0),
    gap=_gap,
    describe=_describe,
    details=lambda record: [f"{s.score:.3f}  {s.label}  {s.start}-{s.end}" for s in record.spans],
)


def reader(model: ModelOutputs) -> RecordReader:
    """Reads the spans of each sample.

    Raises:
        ProcessingError: EDGE-PROCESS-025, the step's mask is no input.
    """
    step = model.step
    assert isinstance(step, Spans)
    return position_reader(
        step, model, lambda value, where: spans(step, value, model.labels, where)
    )


def spans(
    step: Spans, value: np.ndarray, labels: Sequence[str], where: tuple[np.ndarray, np.ndarray]
) -> Tokens:
    """spans/1 on one sample.

    Args:
        step: What to do.
        value: Scores [positions, labels].
        labels: Name of each label.
        where: See `positions`.

    Raises:
        ProcessingError: EDGE-PROCESS-007 (labels), -008 (form), -009 (NaN).
    """
    scores = position_scores(step.output, value)
    count = scores.shape[1]
    if len(labels) != count:
        raise labels_error(f"{count}, one a column of spans/1", labels)
    places, offsets = where
    shares = softmax(check_numbers(scores[places], "scores"), -1)
    best = shares.argmax(axis=1)
    found: list[Span] = []
    open_ = False
    for kind, share, (start, end) in zip(
        best.tolist(), shares.max(axis=1).tolist(), offsets.tolist(), strict=True
    ):
        name, begins = step.named(labels[kind])
        if name is None:
            open_ = False
        elif open_ and not begins and found[-1].label == name:
            last = found[-1]
            found[-1] = Span(start=last.start, end=end, label=name, score=min(last.score, share))
        else:
            found.append(Span(start=start, end=end, label=name, score=share))
            open_ = True
    unsure = offsets[leads(shares, 1) < SCHEMA.sure]
    return Tokens(spans=tuple(found), unsure=tuple((int(a), int(b)) for a, b in unsure))
