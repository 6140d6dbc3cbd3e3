"""Frames: F1 of speech, what a user's reference may answer, and true segments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgeserve.data.ground_truth import TruthReader, bad_place
from edgeserve.tasks.answers import field_answers
from edgeserve.tasks.metrics import F1Row, TaskMetrics, f1
from edgeserve.tasks.voice_activity import TrueSegments, Voice
from edgeserve.types.records import Record


def frame_row(truth: TrueSegments, reference: Record | None, answer: Record | None) -> F1Row:
    """Frames of one sound in which somebody speaks: those whose middle lies in a segment.

    Each side is counted in its own frames; one that has none misses all of the other's.
    """
    sides = [_frame_counts(truth, each) for each in (reference, answer)]
    for mine, other in ((0, 1), (1, 0)):
        if sides[mine] is None:
            sides[mine] = (0, (sides[other] or (0, 0, 0))[1], 0)
    (first, *one), (second, *two) = (side or (0, 0, 0) for side in sides)
    return F1Row((first, second), (sum(one), sum(two)))


def _frame_counts(truth: TrueSegments, record: Record | None) -> tuple[int, int, int] | None:
    """Frames that are true and found, that are true, that are found."""
    if not isinstance(record, Voice):
        return None
    middles = (np.arange(record.prob.size) + 0.5) * record.step_s
    wanted = np.zeros(record.prob.size, bool)
    for start, end in truth.segments:
        wanted |= (middles >= start) & (middles < end)
    found = record.prob >= 0.5
    return int((wanted & found).sum()), int(wanted.sum()), int(found.sum())


METRICS = TaskMetrics(
    row=lambda truth, place, reference, answer: frame_row(truth, reference, answer), read=f1
)


ANSWERS = field_answers(
    Voice,
    "prob [n] and step_s",
    lambda given, _: Voice(prob=np.asarray(given["prob"]), step_s=float(given["step_s"])),
    finite=lambda record: (record.prob,),
    shares=lambda record: (record.prob,),
)


#: A segment may reach this far beyond the sound, in seconds: labelling tools round.
_SLACK_SECONDS = 0.1


def _true_segments(
    given: Sequence[tuple[float, float]], where: str, seconds: float | None
) -> TrueSegments:
    """When somebody speaks, in a sound of so many seconds (None: not known).

    Raises:
        DataError: EDGE-DATA-026, one is empty or lies beyond the sound.
    """
    last = math.inf if seconds is None else seconds + _SLACK_SECONDS
    for start, end in given:
        if not 0 <= start < end <= last:
            length = "" if seconds is None else f" <= {seconds:g}, the sound's length in seconds"
            raise bad_place(where, f"0 <= start < end{length}", f"{start:g} to {end:g}")
    return TrueSegments(segments=tuple(sorted((float(a), float(b)) for a, b in given)))


TRUTH = TruthReader(
    key="segments",
    type=list[tuple[float, float]],
    from_line=lambda given, line: _true_segments(given, line.where, line.seconds),
)
