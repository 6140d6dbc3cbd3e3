"""Texts against the reference's: tokens that agree."""

from __future__ import annotations

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.text_generation import Text

__all__ = ["METRICS", "TokenAgreement"]


class TokenAgreement:
    """Share of positions at which the answers say the reference's token, over all inputs."""

    def __init__(self, rule: DecisionRule) -> None:
        self._places = self._same = 0

    def add(self, reference: Text, answer: Text | None) -> None:
        """Take one input in."""
        self._places += len(reference.tokens)
        pairs = zip(reference.tokens, answer.tokens if answer else (), strict=False)
        self._same += sum(wanted == got for wanted, got in pairs)

    def value(self) -> dict[str, float]:
        """``agreement``."""
        return {"agreement": self._same / self._places} if self._places else {}


METRICS = TokenAgreement
