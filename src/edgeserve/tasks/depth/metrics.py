"""Depths against the reference's: mean relative error."""

from __future__ import annotations

from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.depth.compare import relative_error

__all__ = ["METRICS", "DepthError"]


class DepthError:
    """Mean over all pixels of the relative error against the reference's depth."""

    def __init__(self, rule: DecisionRule) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, reference: Depth, answer: Depth | None) -> None:
        """Take one input in; an answer of another size, or none, is not measured."""
        if answer is not None and answer.map.shape == reference.map.shape:
            self._sum += float(relative_error(reference, answer).sum())
            self._count += reference.map.size

    def value(self) -> dict[str, float]:
        """``abs_rel``."""
        return {"abs_rel": self._sum / self._count} if self._count else {}


METRICS = DepthError
