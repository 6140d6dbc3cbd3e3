"""How far an artifact's decisions move: the error that golden cases must be far from.

It is measured against the exported program, whose tensors the file should give: how far the
reference itself is from that program is another question, which `Tally.drift` answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from edgeserve import decisions
from edgeserve.decisions import RECORDS, Rule
from edgeserve.types.records import Classification, Embedding, Record
from edgeserve.validate.many import UnitTally
from edgeserve.validate.neighbourhood import NeighbourTally, as_matrix, gaps
from edgeserve.validate.tally import EachTally, Tally

__all__ = ["CosineError", "Error", "ScoreError", "error_of", "tally_of"]


class Error(ABC):
    """The largest error seen so far."""

    @abstractmethod
    def add(self, reference: Record | None, answer: Record | None, natural: bool) -> None:
        """Compare one input's decisions.

        Args:
            reference: What the exported program decides.
            answer: What the artifact decides.
            natural: The input is like those that the model is made for.
        """

    @abstractmethod
    def largest(self) -> float:
        """The largest error over all inputs; 0 before any."""


class ScoreError(Error):
    """The largest change of a score, or of a margin, on any input (`edgeserve.decisions.gap`)."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._largest = 0.0

    def add(self, reference: Record | None, answer: Record | None, natural: bool) -> None:
        """See `Error.add`."""
        self._largest = max(self._largest, decisions.gap(self._rule, reference, answer))

    def largest(self) -> float:
        """See `Error.largest`."""
        return self._largest


class CosineError(Error):
    """Of embeddings: the largest change of a cosine that decides, among natural inputs."""

    def __init__(self) -> None:
        self._wanted: list[np.ndarray] = []
        self._given: list[np.ndarray | None] = []

    def add(self, reference: Record | None, answer: Record | None, natural: bool) -> None:
        """See `Error.add`; generated extremes are nobody's neighbours."""
        if natural and isinstance(reference, Embedding):
            self._wanted.append(reference.vector)
            self._given.append(answer.vector if isinstance(answer, Embedding) else None)

    def largest(self) -> float:
        """See `Error.largest`."""
        if not self._wanted:
            return 0.0
        size = self._wanted[0].size
        return float(gaps(as_matrix(self._wanted, size), as_matrix(self._given, size)).max())


def tally_of(rule: Rule) -> Tally:
    """How decisions are counted."""
    if rule.task == "feature-extraction":
        return NeighbourTally(rule.task)
    return EachTally(rule.task) if RECORDS.get(rule.task) is Classification else UnitTally(rule)


def error_of(rule: Rule) -> Error:
    """How far decisions move."""
    return CosineError() if rule.task == "feature-extraction" else ScoreError(rule)
