"""Spans against the reference's: F1."""

from __future__ import annotations

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.token_classification import Tokens
from edgeserve.tasks.token_classification.compare import f1, span_key

__all__ = ["METRICS", "SpanF1"]


class SpanF1:
    """F1 of the answers' spans against the reference's, over all inputs."""

    def __init__(self, rule: DecisionRule) -> None:
        self._wanted = self._got = self._both = 0

    def add(self, reference: Tokens, answer: Tokens | None) -> None:
        """Take one input in."""
        wanted = {span_key(span) for span in reference.spans}
        got = {span_key(span) for span in answer.spans} if answer else set()
        self._wanted += len(wanted)
        self._got += len(got)
        self._both += len(wanted & got)

    def value(self) -> dict[str, float]:
        """``f1``."""
        return f1(self._wanted, self._got, self._both)


METRICS = SpanF1
