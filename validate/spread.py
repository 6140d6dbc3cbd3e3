"""How far an artifact's decisions move: the error that golden cases must be far from.

It is measured against the exported program, whose tensors the file should give: how far the
reference itself is from that program is another question, which `Tally.drift` answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from edgeserve.types.records import Classification, Embedding, Record
from edgeserve.types.words import Task
from edgeserve.validate.neighbourhood import NeighbourTally, as_matrix, gaps
from edgeserve.validate.tally import EachTally, Tally

__all__ = ["CosineError", "Error", "ScoreError", "error_of", "score_gap", "tally_of"]


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
    """Of classifications: the largest difference of a class's score, on any input."""

    def __init__(self) -> None:
        self._largest = 0.0

    def add(self, reference: Record | None, answer: Record | None, natural: bool) -> None:
        """See `Error.add`."""
        self._largest = max(self._largest, score_gap(reference, answer))

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


def score_gap(reference: Record | None, answer: Record | None) -> float:
    """Largest difference between the scores of classes that both records keep; 0 where none."""
    if not isinstance(reference, Classification) or not isinstance(answer, Classification):
        return 0.0
    wanted, got = _scores(reference), _scores(answer)
    return max((abs(wanted[c] - got[c]) for c in wanted.keys() & got.keys()), default=0.0)


def _scores(record: Classification) -> dict[int | str, float]:
    if record.indexes:
        scores = (score for _, score in record.top)
        return dict(zip(record.indexes, scores, strict=True))
    return dict(record.top)


def tally_of(task: Task) -> Tally:
    """How decisions of a task are counted."""
    return NeighbourTally(task) if task == "feature-extraction" else EachTally(task)


def error_of(task: Task) -> Error:
    """How far decisions of a task move."""
    return CosineError() if task == "feature-extraction" else ScoreError()
