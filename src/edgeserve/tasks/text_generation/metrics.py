"""Share of positions at which an answer says the reference's token."""

from __future__ import annotations

from edgeserve.tasks.metrics import RatioFigure, TaskMetrics
from edgeserve.tasks.text_generation import Text

__all__ = ["METRICS"]


def _agreement(reference: Text, answer: Text | None) -> tuple[float, float]:
    pairs = zip(reference.tokens, answer.tokens if answer else (), strict=False)
    return sum(wanted == got for wanted, got in pairs), len(reference.tokens)


METRICS = TaskMetrics(figures=lambda rule: RatioFigure("agreement", _agreement))
