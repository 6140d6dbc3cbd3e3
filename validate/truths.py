"""With true boxes, masks, spans or segments: the task's metric, of the reference and the artifact.

Like labels they inform: no verdict rests on them (docs/verdicts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from edgeserve.data import Known, true_mask
from edgeserve.processing.prepared import origins_of
from edgeserve.processing.tokens import span_labels
from edgeserve.processing.undo import Way
from edgeserve.types.processing import CenterCrop, Decode, Resize, Spans
from edgeserve.types.records import Record
from edgeserve.types.reports import MetricStats
from edgeserve.types.samples import Sample
from edgeserve.types.source import Exported
from edgeserve.types.truths import DrawnMask, MaskFile, TrueBoxes, TrueSegments, TrueSpans, Truth
from edgeserve.validate.resampled import Evaluate, resampled_stats
from edgeserve.validate.true_boxes import average_precisions, box_row
from edgeserve.validate.true_masks import mask_row, mean_overlaps
from edgeserve.validate.true_spans import f1, frame_row, span_row

__all__ = ["Truths", "known_of"]

_Feed = Mapping[str, np.ndarray]


class _Way(NamedTuple):
    """How one kind of truth is counted, input by input, and read of all of them."""

    row: Callable[[Any, Record | None, Record | None], object]
    read: Evaluate[Any]


_WAYS: dict[type, _Way] = {
    TrueBoxes: _Way(box_row, average_precisions),
    TrueSpans: _Way(span_row, f1),
    TrueSegments: _Way(frame_row, f1),
}


def known_of(exported: Exported) -> Known:
    """The model as the readers of true answers want it."""
    steps = [step for step in exported.processing.outputs if isinstance(step, Spans)]
    labels = span_labels(steps[0], exported.labels) if steps else exported.labels
    first = exported.processing.inputs[:1]
    decode = [step for each in first for step in each.steps if isinstance(step, Decode)]
    return Known(exported.task, tuple(labels), all(step.exif for step in decode))


class Truths:
    """Gathers counts over inputs, never pictures.

    Args:
        exported: The model.
    """

    def __init__(self, exported: Exported) -> None:
        self._labels = exported.labels
        first = exported.processing.inputs[:1]
        self._steps = [
            step for each in first for step in each.steps if isinstance(step, Resize | CenterCrop)
        ]
        self._rows: list[tuple[str, Any]] = []
        self._read: Evaluate[Any] | None = None

    def add(
        self, sample: Sample, feed: _Feed, reference: Record | None, answer: Record | None
    ) -> None:
        """Count one input; nothing where its data do not say what is true of it.

        Args:
            sample: The input.
            feed: What was made of it, with its origin.
            reference: What the reference decided; an input that it did not decide is left out.
            answer: What the artifact decided; None: it found nothing.

        Raises:
            DataError: EDGE-DATA-021 or -025, its mask is another than the one that was checked.
        """
        if sample.truth is None or reference is None:
            return
        row, self._read = self._counted(sample.truth, feed, reference, answer)
        if row is not None:
            self._rows.append((sample.group, row))

    def stats(self) -> tuple[MetricStats, ...]:
        """The task's metrics; none without true answers."""
        return resampled_stats(self._rows, self._read) if self._read else ()

    def _counted(
        self, truth: Truth, feed: _Feed, reference: Record, answer: Record | None
    ) -> tuple[object, Evaluate[Any]]:
        if not isinstance(truth, DrawnMask | MaskFile):
            way = _WAYS[type(truth)]
            return way.row(truth, reference, answer), way.read
        origins = origins_of([feed])
        size = origins[0].size if origins else None
        if size is None:  # made of no picture: there are no pixels to tell the truth of
            return None, mean_overlaps
        mask, to = true_mask(truth, size), Way(self._steps, size)
        return mask_row(mask, to, self._labels, reference, answer), mean_overlaps
