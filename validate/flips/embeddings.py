"""What embeddings decide: each input's nearest neighbour among all the others.

A flip is another neighbour; it is harm where the reference's neighbour is nearer than its next one
by the margin. Beside the decisions stand figures that need none: how near the vectors are to the
reference's, and whether they rank the other inputs alike.

Source:
    C. Spearman, "The proof and measurement of association between two things", American Journal of
    Psychology 15 (1904) 72-101: correlation of ranks, ties at their mean rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve import tasks
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances, nearest_neighbours, unit_vectors
from edgeserve.types.base import Number, number
from edgeserve.types.records import Record
from edgeserve.types.reports import EmbeddingStats
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.types.vocabulary import Task
from edgeserve.validate.flips.counter import (
    NO_DECISION,
    DecisionRow,
    FlipCounter,
    one_decision,
    shortened,
)

_BLOCK = 512
#: Ranks are compared for so many inputs at most, spread evenly: each costs a sort of all others.
_MAX_RANKED = 500
#: Two cosines cannot be further apart.
_MAX_COSINE_GAP = 2.0
_MAX_NAME = 70


def as_matrix(vectors: Sequence[np.ndarray | None], size: int) -> np.ndarray:
    """Vectors as rows, float32 [n, size]; NaN where there is none or it has another size."""
    matrix = np.full((len(vectors), size), np.nan, np.float32)
    for row, vector in zip(matrix, vectors, strict=True):
        if vector is not None and vector.shape == row.shape:
            row[:] = vector
    return matrix


def cosine_gaps(reference: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """How far each input's deciding cosines are from the reference's.

    The largest of: its vector's cosine distance from the reference's vector; the changes of its
    cosines to the reference's two nearest neighbours and to the answer's nearest.

    Args:
        reference: Vectors [n, d].
        answer: The answer's vectors to the same inputs [n, d].

    Returns:
        float64 [n]; 2 where a vector is not finite.
    """
    found = cosine_distances(reference, answer)
    one, other = np.nan_to_num(unit_vectors(reference)), np.nan_to_num(unit_vectors(answer))
    for start in range(0, len(found), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(found)))
        wanted, got = one[rows] @ one.T, other[rows] @ other.T
        changed = np.abs(wanted - got)
        for cosines, most in ((wanted, 2), (got, 1)):
            cosines[rows - start, rows] = -np.inf
            for _ in range(min(most, len(found) - 1)):
                best = cosines.argmax(axis=1)
                found[rows] = np.fmax(found[rows], changed[rows - start, best])
                cosines[rows - start, best] = -np.inf
    lost = ~np.isfinite(reference).all(axis=1) | ~np.isfinite(answer).all(axis=1)
    return np.where(lost, _MAX_COSINE_GAP, found)


def rank_correlation(reference: np.ndarray, answer: np.ndarray) -> float:
    """Spearman's correlation of each input's cosines to all others, mean over the inputs.

    Args:
        reference: Vectors [n, d].
        answer: The answer's vectors to the same inputs [n, d].

    Returns:
        -1 to 1; NaN with fewer than three inputs, or where all cosines of every input are equal.
    """
    count = len(reference)
    if count < 3:
        return float("nan")
    one, other = unit_vectors(reference), unit_vectors(answer)
    found = []
    for row in np.unique(np.linspace(0, count - 1, min(count, _MAX_RANKED)).astype(int)):
        rest = np.arange(count) != row
        pair = [_ranks((rows @ rows[row])[rest]) for rows in (one, other)]
        found.append(_pearson(*pair))
    known = [value for value in found if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value from 0; equal ones share their mean."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(values)]
    ranks = np.empty(len(values))
    ranks[order] = np.repeat((starts + ends - 1) / 2, ends - starts)
    return ranks


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale else float("nan")


class VectorPairs:
    """The vectors of the reference and of the answer to the same inputs."""

    def __init__(self) -> None:
        self._wanted: list[np.ndarray] = []
        self._given: list[np.ndarray | None] = []

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, reference: Embedding, answer: Record | None) -> None:
        """Take in one input."""
        self._wanted.append(reference.vector)
        self._given.append(answer.vector if isinstance(answer, Embedding) else None)

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Both as rows; NaN where there is no such answer."""
        size = self._wanted[0].size
        return as_matrix(self._wanted, size), as_matrix(self._given, size)

    def largest_gap(self) -> float:
        """The largest of `cosine_gaps`; not before the first input."""
        return float(cosine_gaps(*self.matrices()).max())


class NeighbourFlipCounter(FlipCounter):
    """Each input decides which other one is nearest to it; see the head of this file."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._samples: list[Sample] = []
        self._vectors = VectorPairs()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: Sample, stored: StoredAnswer, answer: Record | None) -> None:
        """See `FlipCounter.add`; ``stored.margin`` is not used: all inputs together give it."""
        if not isinstance(stored.record, Embedding):
            return
        self._samples.append(sample)
        self._vectors.add(stored.record, answer)

    def rows(self) -> Sequence[DecisionRow]:
        """See `FlipCounter.rows`."""
        if len(self._rows) < len(self._samples):
            self._rows = self._compared()
        return self._rows

    def _compared(self) -> list[DecisionRow]:
        reference, answer = self._vectors.matrices()
        wanted, margins = nearest_neighbours(reference)
        got, _ = nearest_neighbours(answer)
        flipped, decided = wanted != got, margins >= tasks.sure_margin(self._task)
        return [
            DecisionRow(
                sample,
                self._neighbour(reference, i, int(wanted[i])),
                self._neighbour(answer, i, int(got[i])),
                float(margins[i]),
                one_decision(flipped=bool(flipped[i]), decided=bool(decided[i])),
            )
            for i, sample in enumerate(self._samples)
        ]

    def _neighbour(self, vectors: np.ndarray, of: int, index: int) -> str:
        """A neighbour in words, with its cosine."""
        if index < 0:
            return NO_DECISION
        one, other = unit_vectors(vectors[[of, index]])
        return f"{_name(self._samples[index])} {float(one @ other):.2f}"

    def drift(self) -> Number | None:
        """Largest change of a cosine that decides, against the reference's own vectors."""
        return number(self._vectors.largest_gap()) if self._samples else None

    def _embedding(self) -> EmbeddingStats | None:
        if not self._samples:
            return None
        reference, answer = self._vectors.matrices()
        cosines = 1.0 - cosine_distances(reference, answer)
        return EmbeddingStats(
            cosine_mean=number(float(cosines.mean())),
            cosine_min=number(float(cosines.min())),
            rank=number(rank_correlation(reference, answer)),
        )


def _name(sample: Sample) -> str:
    """What to call an input: its own words where it is a text."""
    if sample.text is None:
        return sample.id
    return f"“{shortened(sample.text, _MAX_NAME)}”"
