"""Two halves of a data set, by group: one to calibrate with, the other to judge with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from edgeserve.errors import DataError
from edgeserve.types.samples import Half, Sample

__all__ = ["split"]


def split(samples: Iterable[Sample], seed: int = 0) -> dict[Half, tuple[Sample, ...]]:
    """Deal the groups out in turn, so that samples of one group never stand on both sides.

    Groups are sorted by sha256 of ``{seed}:{group}``; the first goes to the evaluation half, the
    second to calibration, and so on: the evaluation half has as many groups or one more. Which half
    a group falls into depends on the groups' names, never on the order or number of samples.
    Samples keep their order.

    Raises:
        DataError: EDGE-DATA-019, fewer than two groups.
    """
    samples = tuple(samples)
    groups = sorted({s.group for s in samples}, key=lambda group: _rank(group, seed))
    if len(groups) < 2:
        raise DataError(
            "EDGE-DATA-019",
            "the data",
            wanted="at least two groups",
            got=f"{len(samples)} inputs in {len(groups)} group{'s' * (len(groups) != 1)}",
            hint="add inputs of another photo or speaker, or correct what the data calls a group",
        )
    judged = frozenset(groups[::2])
    return {
        "calibration": tuple(s for s in samples if s.group not in judged),
        "evaluation": tuple(s for s in samples if s.group in judged),
    }


def _rank(group: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{group}".encode()).hexdigest()
