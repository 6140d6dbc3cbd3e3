"""Spans and frames against true ones: F1 over all inputs.

Source:
    E. F. Tjong Kim Sang, F. De Meulder, "Introduction to the CoNLL-2003 shared task", CoNLL 2003: a
    span is right where its start, end and label are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.types.records import Record, Tokens, Voice
from edgeserve.types.truths import TrueSegments, TrueSpans

__all__ = ["PairRow", "f1", "frame_row", "span_row"]


class PairRow(NamedTuple):
    """What was found in one input; of the reference, then of the artifact.

    Attributes:
        both: Things that are true and found.
        sum: True things and found ones, added up.
    """

    both: tuple[int, int]
    sum: tuple[int, int]


def span_row(truth: TrueSpans, reference: Record | None, answer: Record | None) -> PairRow:
    """Spans of one text; a side that is no record of spans found none."""
    wanted = set(truth.spans)
    found = [
        {(s.start, s.end, s.label) for s in each.spans} if isinstance(each, Tokens) else set()
        for each in (reference, answer)
    ]
    return PairRow(
        (len(wanted & found[0]), len(wanted & found[1])),
        (len(wanted) + len(found[0]), len(wanted) + len(found[1])),
    )


def frame_row(truth: TrueSegments, reference: Record | None, answer: Record | None) -> PairRow:
    """Frames of one sound in which somebody speaks: those whose middle lies in a segment.

    Each side is counted in its own frames; one that has none misses all of the other's.
    """
    sides = [_frames(truth, each) for each in (reference, answer)]
    for mine, other in ((0, 1), (1, 0)):
        if sides[mine] is None:
            sides[mine] = (0, (sides[other] or (0, 0, 0))[1], 0)
    (first, *one), (second, *two) = (side or (0, 0, 0) for side in sides)
    return PairRow((first, second), (sum(one), sum(two)))


def _frames(truth: TrueSegments, record: Record | None) -> tuple[int, int, int] | None:
    """Frames that are true and found, that are true, that are found."""
    if not isinstance(record, Voice):
        return None
    middles = (np.arange(record.prob.size) + 0.5) * record.step_s
    wanted = np.zeros(record.prob.size, bool)
    for start, end in truth.segments:
        wanted |= (middles >= start) & (middles < end)
    found = record.prob >= 0.5
    return int((wanted & found).sum()), int(wanted.sum()), int(found.sum())


def f1(groups: Sequence[Sequence[PairRow]], weights: np.ndarray) -> dict[str, np.ndarray]:
    """``f1`` of both sides; see `edgeserve.validate.resampled`."""
    both = np.array([np.sum([row.both for row in rows], axis=0) for rows in groups], np.float64)
    total = np.array([np.sum([row.sum for row in rows], axis=0) for rows in groups], np.float64)
    right, size = (weights @ both).T, (weights @ total).T
    return {"f1": np.where(size > 0, 2 * right / np.maximum(size, 1), np.nan)}
