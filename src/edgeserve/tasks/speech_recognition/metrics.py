"""Transcripts against the reference's: word error rate."""

from __future__ import annotations

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.speech_recognition.compare import edit_distance
from edgeserve.tasks.text_generation import Text

__all__ = ["METRICS", "WordErrorRate"]


class WordErrorRate:
    """Word error rate of the answers against the reference's own text, over all inputs."""

    def __init__(self, rule: DecisionRule) -> None:
        self._words = self._edits = 0

    def add(self, reference: Text, answer: Text | None) -> None:
        """Take one input in."""
        words = reference.text.split()
        self._words += len(words)
        self._edits += edit_distance(words, answer.text.split() if answer else [])

    def value(self) -> dict[str, float]:
        """``wer``."""
        return {"wer": self._edits / self._words} if self._words else {}


METRICS = WordErrorRate
