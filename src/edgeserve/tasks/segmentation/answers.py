"""A mask as a user's reference answers it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from edgeserve.tasks.answers import Fields, ReferenceAnswers, check_numbers, field_parser
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.segmentation import Segmentation

__all__ = ["ANSWERS"]


_FORM = "mask [H, W] and, optionally, labels and margin [H, W]"


def _segmentation(fields: Fields, labels: Sequence[str]) -> Segmentation:
    margin = fields.get("margin")
    return Segmentation(
        mask=np.asarray(fields["mask"]),
        labels=tuple(fields.get("labels") or labels),
        margin=None if margin is None else np.asarray(margin),
    )


def _check(record: Segmentation, labels: Sequence[str], thing: str) -> None:
    check_numbers(Segmentation, _FORM, thing, (record.margin,), (record.margin,))


def _complete(rule: DecisionRule, record: Segmentation, program: Segmentation) -> Segmentation:
    labels, margin = record.labels or program.labels, record.margin
    margin = program.margin if margin is None else margin
    return msgspec.structs.replace(record, margin=margin, labels=labels)


ANSWERS = ReferenceAnswers(
    field_parser(Segmentation, _FORM, _segmentation, _check),
    complete=_complete,
    own=lambda record, scored: record.mask,
)
