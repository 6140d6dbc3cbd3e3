"""One type for the records of all tasks, one for their output steps, one for true answers.

JSON is read by these unions: a value's tag (``"record": "detection"``) says which of them it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from edgeserve.tasks import REGISTRY, schema

if TYPE_CHECKING:
    from edgeserve.types.base import Value as Truth
    from edgeserve.types.records import Record as AnyRecord
    from edgeserve.types.steps import TaskOutput as AnyTaskOutput
else:

    def _one_of(kinds: Iterable[type]) -> Any:
        return reduce(or_, dict.fromkeys(kinds))

    _SCHEMAS = [schema(task) for task in REGISTRY]
    AnyRecord = _one_of(each.record for each in _SCHEMAS)
    AnyTaskOutput = _one_of(step for each in _SCHEMAS for step in each.steps)
    Truth = _one_of(truth for each in _SCHEMAS for truth in each.truths)

__all__ = ["AnyRecord", "AnyTaskOutput", "Truth"]
