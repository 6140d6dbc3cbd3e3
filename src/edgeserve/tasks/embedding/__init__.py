"""The record of a feature extraction."""

from __future__ import annotations

import numpy as np

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.records import Record

__all__ = ["SCHEMA", "Embedding"]


class Embedding(Record, frozen=True, kw_only=True, tag_field="record", tag="embedding"):
    """Vector float32 [d]."""

    vector: np.ndarray

    def __post_init__(self) -> None:
        self.hold("vector", np.float32, 1)


SCHEMA = TaskSchema(
    Embedding,
    decisions="neighbours",
    sure=0.01,
    unit="inputs",
    answer="nearest neighbour",
    most_drift=0.01,
)
