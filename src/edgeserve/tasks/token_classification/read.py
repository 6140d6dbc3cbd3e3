"""spans/1: labelled spans out of scores a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    RecordReader,
    check_numbers,
    labels_error,
    softmax,
)
from edgeserve.processing.outputs.positions import leads, position_reader, position_scores
from edgeserve.tasks.token_classification import SCHEMA, Span, Spans, Tokens

__all__ = ["reader", "span_labels", "spans"]


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
        name, begins = _named(labels[kind], step)
        if name is None:
            open_ = False
        elif open_ and not begins and found[-1].label == name:
            last = found[-1]
            found[-1] = Span(start=last.start, end=end, label=name, score=min(last.score, share))
        else:
            found.append(Span(start=start, end=end, label=name, score=share))
            open_ = True
    unsure = offsets[np.asarray(leads(shares)) < SCHEMA.sure]
    return Tokens(spans=tuple(found), unsure=tuple((int(a), int(b)) for a, b in unsure))


def span_labels(step: Spans, labels: Sequence[str]) -> tuple[str, ...]:
    """What spans may be called: the labels without B- and I-, and not the one of no span."""
    named = (_named(label, step)[0] for label in labels)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _named(label: str, step: Spans) -> tuple[str | None, bool]:
    """What a token's label says: which kind of span, and whether a new one begins."""
    if label == step.outside:
        return None, False
    if step.scheme == "bio" and label[:2] in ("B-", "I-"):
        return label[2:], label[0] == "B"
    return label, False
