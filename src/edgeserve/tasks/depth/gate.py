"""Depths: mean relative error against the reference, and what a user's reference may answer."""

from __future__ import annotations

import numpy as np

from edgeserve.tasks.answers import field_answers
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.depth.device import relative_error
from edgeserve.tasks.metrics import RatioFigure, TaskMetrics


def _error(reference: Depth, answer: Depth | None) -> tuple[float, float]:
    """An answer of another size, or none, is not measured."""
    if answer is None or answer.map.shape != reference.map.shape:
        return 0.0, 0.0
    return float(relative_error(reference, answer).sum()), reference.map.size


METRICS = TaskMetrics(
    figures=lambda rule: RatioFigure("abs_rel", _error), titles={"abs_rel": "mean relative error"}
)


ANSWERS = field_answers(
    Depth,
    "map [H, W]",
    lambda fields, labels: Depth(map=np.asarray(fields["map"])),
    finite=lambda record: (record.map,),
)
