"""Nearest neighbours by cosine: what an embedding decides, and how sure that decision is.

A vector alone decides nothing; in a set, each decides which other one is nearest to it. The gate
compares these decisions over the evaluation set, the Wrapper over the golden cases. All arithmetic
is in float64, and cosines closer than `TIE` count as equal, so that every implementation finds the
same neighbours whatever order its sums are added in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.processing.arrays import Arrays, SampleOrigin, check_numbers, wrong_outputs
from edgeserve.processing.outputs.reader import (
    ModelOutputs,
    RecordReader,
    check_form,
    result_output,
)
from edgeserve.processing.steps.pool import Pool
from edgeserve.tasks.base import DecisionCounts, RecordComparison
from edgeserve.tasks.embedding import Embedding

#: Cosines closer than this are a tie: far above float64 rounding, far below what a float32 vector
#: can mean.
TIE = 1e-9

#: Rows of the matrix of cosines held at once.
_BLOCK = 512

Vectors = np.ndarray


def unit_vectors(vectors: Vectors) -> Vectors:
    """Rows of length 1, in float64; a row of zeros stays one, a row that is not finite is NaN.

    Args:
        vectors: Numbers [n, d].
    """
    rows = np.asarray(vectors, np.float64)
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    rows = np.where(finite, rows, 0.0)
    # Scaled first, so that squares neither overflow nor vanish.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.where(finite, rows / np.where(lengths > 0, lengths, 1.0), np.nan)


def nearest_neighbours(vectors: Vectors) -> tuple[Vectors, Vectors]:
    """For each vector the nearest other one, and how much nearer it is than the next.

    Ties go to the lower index. A row that is not finite is nobody's neighbour and has none: its
    neighbour is -1, its margin 0.

    Args:
        vectors: Numbers [n, d].

    Returns:
        Index of the nearest other row, int64 [n], -1 where there is none; and the margin, float64
        [n]: its cosine minus that of the second nearest, at least 0. With fewer than three rows
        there is no second, nothing could flip, and the margin is 0.

    Raises:
        ValueError: ``vectors`` is no matrix.
    """
    if np.ndim(vectors) != 2:
        raise ValueError(f"vectors of shape {np.shape(vectors)}, not [n, d]")
    rows = unit_vectors(vectors)
    count = len(rows)
    neighbours = np.full(count, -1, np.int64)
    margins = np.zeros(count)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        found, sure = _of_block(rows, start, stop)
        neighbours[start:stop], margins[start:stop] = found, sure
    return neighbours, margins


def _of_block(rows: Vectors, start: int, stop: int) -> tuple[Vectors, Vectors]:
    lost = np.flatnonzero(np.isnan(rows).any(axis=1))
    cosines = np.nan_to_num(rows[start:stop]) @ np.nan_to_num(rows).T
    cosines[:, lost] = -np.inf
    cosines[lost[(lost >= start) & (lost < stop)] - start] = -np.inf
    here = np.arange(stop - start)
    cosines[here, here + start] = -np.inf  # nobody is their own neighbour
    highest = cosines.max(axis=1, initial=-np.inf)
    known = np.isfinite(highest)
    best = np.where(known, (cosines >= highest[:, None] - TIE).argmax(axis=1), -1)
    own = cosines[here, best]
    cosines[here, best] = -np.inf
    second = cosines.max(axis=1, initial=-np.inf)
    both = known & np.isfinite(second)
    margins = np.zeros(stop - start)
    margins[both] = np.maximum(own[both] - second[both], 0.0)
    return best, margins


def cosine_distances(first: Vectors, second: Vectors) -> Vectors:
    """Cosine distance, ``1 - cosine``, of each row of one matrix to the same row of the other.

    Computed as half the squared length of the difference of the unit vectors, which keeps its
    digits where the two are nearly equal (the cosine itself loses half of them).

    Args:
        first: Numbers [n, d].
        second: Numbers [n, d].

    Returns:
        float64 [n], 0 to 2; NaN where a row is not finite.
    """
    one, other = unit_vectors(first), unit_vectors(second)
    lonely = one.any(axis=1) != other.any(axis=1)  # a row of zeros has the cosine 0 with any other
    return np.where(lonely, 1.0, np.square(one - other).sum(axis=1) / 2.0)


#: A vector alone decides nothing: there is no margin, and nothing that moves one.
COMPARISON = RecordComparison(
    compare=lambda rule, reference, answer, sure: DecisionCounts(0, 0, 0, 0),
    margin=lambda rule, record: 0.0,
    gap=lambda rule, reference, answer: 0.0,
    describe=lambda record: f"vector of {record.vector.size}",
)


def reader(model: ModelOutputs) -> RecordReader:
    """Reads one vector a sample.

    Raises:
        ProcessingError: EDGE-PROCESS-006, no single output to read, or it is no vector.
    """
    output = result_output(model)
    steps = model.processing.outputs
    pooled = any(isinstance(step, Pool) and step.output == output for step in steps)
    wanted = "[batch, tokens, d], which pool/1 pools" if pooled else "[batch, d]"
    hint = "" if pooled else "; a pool/1 step makes one vector out of those of the tokens"
    check_form(output, model.signature, 3 if pooled else 2, f"{wanted} for an embedding{hint}")

    def read(values: Arrays, feed: Arrays, origins: Sequence[SampleOrigin]) -> list[Embedding]:
        vectors = values[output]
        if vectors.ndim != 2 or vectors.shape[1] == 0 or vectors.dtype.kind != "f":
            got = f"{vectors.dtype} {list(vectors.shape)}"
            raise wrong_outputs("one vector a sample, floats [batch, d]", got)
        return [embedding(row) for row in np.asarray(vectors, np.float32)]

    return read


def embedding(vector: np.ndarray) -> Embedding:
    """The record of one vector [d].

    Raises:
        ProcessingError: EDGE-PROCESS-009, a component is NaN or infinite.
    """
    return Embedding(vector=check_numbers(vector, "vector"))
