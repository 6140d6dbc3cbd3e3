"""What the reference nearly decided: so that no invention is excused as a close call.

A detector lists boxes from its threshold on. An artifact's box just above it may be one that the
reference has just below it, a close call, or an invention where the reference sees nothing. The
exported program's outputs tell which: its boxes are listed a margin further down.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from edgeserve import decisions
from edgeserve.data import Feed
from edgeserve.decisions import DECIDED_MARGIN
from edgeserve.decisions.boxes import IOU
from edgeserve.decisions.overlap import iou
from edgeserve.processing import Processor
from edgeserve.types.processing import Detect
from edgeserve.types.records import Detection, Record, Text, Tokens
from edgeserve.types.source import Exported
from edgeserve.validate.deciding import decision, processor_of

__all__ = ["Attentive"]

_SURE = DECIDED_MARGIN["object-detection"]
#: No threshold is lowered below this.
_LEAST = 1e-6
#: Boxes below the threshold that are looked at, as a multiple of those that may be kept.
_MORE = 4


class Attentive:
    """Completes the records of a reference by what its program nearly decided.

    Args:
        exported: The model.
        folder: The folder that its files lie in.
    """

    def __init__(self, exported: Exported, folder: Path) -> None:
        self._rule = decisions.rule_of(exported.task, exported.processing)
        self._lowered = _lowered(exported, folder)

    def complete(self, record: Record | None, outputs: Feed, feed: Feed) -> Record | None:
        """A record of the reference with what the program's outputs add; others as they are."""
        if isinstance(record, Detection) and self._lowered is not None:
            near = decision(self._lowered, outputs, feed)
            return self._with_near(record, near) if isinstance(near, Detection) else record
        return record

    def told_by(self, program: Record | None, record: Record | None) -> Record | None:
        """A callable's record, with what the program's own (completed) record knows besides."""
        if isinstance(record, Detection) and isinstance(program, Detection):
            return self._with_near(record, program)
        if isinstance(record, Tokens) and isinstance(program, Tokens) and record.unsure is None:
            return msgspec.structs.replace(record, unsure=program.unsure)
        if isinstance(record, Text) and isinstance(program, Text) and record.unsure is None:
            same = record.tokens == program.tokens  # gaps are counted between tokens
            return msgspec.structs.replace(record, unsure=program.unsure if same else None)
        return record

    def _with_near(self, record: Detection, near: Detection) -> Detection:
        """Add the boxes below the threshold that are none of the record's own."""
        found = iou(near.boxes, record.boxes) >= IOU
        alike = np.array([[a == b for b in record.labels] for a in near.labels], bool)
        own = (found & alike.reshape(found.shape)).any(axis=1)
        new = np.flatnonzero((near.scores < self._rule.threshold) & ~own)
        return Detection(
            boxes=np.concatenate([record.boxes, near.boxes[new]]),
            scores=np.concatenate([record.scores, near.scores[new]]),
            labels=(*record.labels, *(near.labels[i] for i in new)),
            floor=self._rule.threshold - _SURE,
        )


def _lowered(exported: Exported, folder: Path) -> Processor | None:
    """The processing with a detector's threshold a margin lower; None for other tasks."""
    steps = exported.processing.outputs
    if not any(isinstance(step, Detect) for step in steps):
        return None
    outputs = tuple(
        msgspec.structs.replace(
            step, threshold=max(step.threshold - _SURE, _LEAST), most=_MORE * step.most
        )
        if isinstance(step, Detect)
        else step
        for step in steps
    )
    processing = msgspec.structs.replace(exported.processing, outputs=outputs)
    return processor_of(msgspec.structs.replace(exported, processing=processing), folder)
