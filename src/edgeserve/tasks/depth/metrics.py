"""Mean relative error of depths against the reference's."""

from __future__ import annotations

from edgeserve.tasks.depth import Depth
from edgeserve.tasks.depth.compare import relative_error
from edgeserve.tasks.metrics import RatioFigure, TaskMetrics

__all__ = ["METRICS"]


def _error(reference: Depth, answer: Depth | None) -> tuple[float, float]:
    """An answer of another size, or none, is not measured."""
    if answer is None or answer.map.shape != reference.map.shape:
        return 0.0, 0.0
    return float(relative_error(reference, answer).sum()), reference.map.size


METRICS = TaskMetrics(
    figures=lambda rule: RatioFigure("abs_rel", _error), titles={"abs_rel": "mean relative error"}
)
