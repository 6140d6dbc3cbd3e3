"""Transcripts: word error rate, and what a user's reference may answer."""

from __future__ import annotations

from edgeserve.tasks.metrics import RatioFigure, TaskMetrics
from edgeserve.tasks.speech_recognition.device import edit_distance
from edgeserve.tasks.text_generation import Text
from edgeserve.tasks.text_generation.gate import ANSWERS
from edgeserve.types.records import Record

__all__ = ["ANSWERS", "METRICS"]


def _word_errors(words: list[str], answer: Record | None) -> float:
    return edit_distance(words, answer.text.split() if isinstance(answer, Text) else [])


def _against(reference: Text, answer: Text | None) -> tuple[float, float]:
    words = reference.text.split()
    return _word_errors(words, answer), len(words)


METRICS = TaskMetrics(
    figures=lambda rule: RatioFigure("wer", _against),
    titles={"wer": "word error rate (WER)"},
    words=lambda sample: (sample.label or "").split(),
    word_errors=_word_errors,
)
