"""The record of a classification."""

from __future__ import annotations

from edgeserve.tasks.base import TaskSchema
from edgeserve.types.records import Record

__all__ = ["SCHEMA", "Classification"]


class Classification(Record, frozen=True, kw_only=True, tag_field="record", tag="classification"):
    """Best class, its probability, and the best ``k`` as (label, score), best first.

    ``index`` is the class index of the best one, -1 where unknown; ``indexes`` those of ``top``,
    empty where unknown. Labels may repeat, indexes do not.
    """

    label: str
    score: float
    top: tuple[tuple[str, float], ...]
    index: int = -1
    indexes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.indexes and len(self.indexes) != len(self.top):
            raise ValueError(f"{len(self.indexes)} indexes for {len(self.top)} entries of top")


SCHEMA = TaskSchema(Classification, decisions="one", unit="inputs", answer="label")
