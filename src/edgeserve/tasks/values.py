"""One type for the records of all tasks, one for their output steps, one for true answers.

JSON is read by these unions: a value's tag (``"record": "detection"``) says which of them it is.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from operator import attrgetter, or_
from typing import TYPE_CHECKING

from edgeserve.tasks import REGISTRY, schema

if TYPE_CHECKING:
    from edgeserve.types.base import Value as Truth
    from edgeserve.types.records import Record as AnyRecord
    from edgeserve.types.steps import TaskOutput as AnyTaskOutput
else:
    _SCHEMAS = list(map(schema, REGISTRY))
    AnyRecord = reduce(or_, map(attrgetter("record"), _SCHEMAS))
    AnyTaskOutput = reduce(or_, chain.from_iterable(map(attrgetter("steps"), _SCHEMAS)))
    Truth = reduce(or_, chain.from_iterable(map(attrgetter("truths"), _SCHEMAS)))

__all__ = ["AnyRecord", "AnyTaskOutput", "Truth"]
