"""Nearest neighbours counted: against scipy, and against sets whose answer is plain to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.spatial.distance import cdist

from edgeserve.tasks import DecisionRule
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.reports import Limits
from edgeserve.types.samples import Sample, StoredAnswer
from edgeserve.validate.flips.embeddings import (
    NeighbourFlipCounter,
    as_matrix,
    cosine_gaps,
    rank_correlation,
)
from edgeserve.validate.run_artifact import DecisionError


def noisy(count: int, size: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    vectors = rng.normal(size=(count, size)).astype(np.float32)
    return vectors, (vectors + level * rng.normal(size=vectors.shape)).astype(np.float32)


def cosines(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 - cdist(vectors.astype(np.float64), vectors.astype(np.float64), "cosine")
    return found


def without_self(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1)


@pytest.mark.parametrize("level", [0.01, 0.3, 3.0])
def test_rank_correlation_is_scipys(level: float) -> None:
    one, other = noisy(60, 8, level)
    pairs = zip(without_self(cosines(one)), without_self(cosines(other)), strict=True)
    expected = np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
    assert rank_correlation(one, other) == pytest.approx(expected, abs=1e-9)


def test_rank_correlation_shares_ranks_of_equals() -> None:
    """Three vectors of a kind twice: most cosines are tied."""
    one = np.repeat(np.eye(3, 4), 2, axis=0)
    other = one[[0, 2, 1, 3, 4, 5]]
    pairs = zip(without_self(cosines(one)), without_self(cosines(other)), strict=True)
    expected = np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
    assert rank_correlation(one, other) == pytest.approx(expected, abs=1e-9)


def test_rank_correlation_of_nothing() -> None:
    assert np.isnan(rank_correlation(np.eye(2), np.eye(2)))
    assert np.isnan(rank_correlation(np.ones((4, 2)), np.ones((4, 2)))), "no ranking at all"


def test_ranks_of_many_are_those_of_some() -> None:
    one, other = noisy(700, 6, 0.2)
    pairs = list(zip(without_self(cosines(one)), without_self(cosines(other)), strict=True))
    whole = np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
    assert rank_correlation(one, other) == pytest.approx(whole, abs=2e-3)


def plain_gaps(one: np.ndarray, other: np.ndarray) -> list[float]:
    """The same by hand: for each input, over the three neighbours that decide."""
    wanted, got = cosines(one), cosines(other)
    found = []
    for i in range(len(one)):
        rest = [j for j in range(len(one)) if j != i]
        second, best = sorted(rest, key=lambda j: wanted[i, j])[-2:]
        theirs = max(rest, key=lambda j: got[i, j])
        own = one[i] @ other[i] / np.linalg.norm(one[i]) / np.linalg.norm(other[i])
        found.append(max(1 - own, *(abs(wanted[i, j] - got[i, j]) for j in (best, second, theirs))))
    return found


@pytest.mark.parametrize("count", [3, 40, 600])
def test_gaps(count: int) -> None:
    one, other = noisy(count, 5, 0.1)
    np.testing.assert_allclose(cosine_gaps(one, other), plain_gaps(one, other), atol=1e-6)


def test_gaps_of_what_is_no_vector() -> None:
    one, other = noisy(4, 3, 0.0)
    other[2, 1] = np.nan
    assert cosine_gaps(one, other)[2] == 2.0
    assert cosine_gaps(one[:1], one[:1] * 7) == pytest.approx([0.0], abs=1e-12), (
        "nobody to be near to"
    )


def tallied(one: np.ndarray, other: np.ndarray | list[np.ndarray | None]) -> NeighbourFlipCounter:
    tally = NeighbourFlipCounter("feature-extraction")
    for i, (wanted, got) in enumerate(zip(one, other, strict=True)):
        stored = StoredAnswer(input_sha256="0", record=Embedding(vector=wanted), margin=None)
        answer = None if got is None else Embedding(vector=got)
        tally.add(Sample(id=f"s{i}", group=f"g{i // 2}", text=f"text {i}"), stored, answer)
    return tally


@given(st.integers(3, 30), st.floats(0.0, 2.0))
@settings(max_examples=30, deadline=None)
def test_flips_are_numpys(count: int, level: float) -> None:
    one, other = noisy(count, 4, level)
    wanted, got = cosines(one), cosines(other)
    for matrix in (wanted, got):
        np.fill_diagonal(matrix, -np.inf)
    ranked = np.sort(wanted, axis=1)
    sure = ranked[:, -1] - ranked[:, -2] >= 0.01
    flips = wanted.argmax(1) != got.argmax(1)
    found = tallied(one, other).stats(Limits())
    assert (found.inputs, found.raw.count, found.raw.n) == (count, flips.sum(), count)
    assert (found.decided.count, found.decided.n) == ((flips & sure).sum(), sure.sum())
    assert found.groups == (count + 1) // 2
    assert found.embedding is not None
    near = np.einsum("nd,nd->n", one, other) / (
        np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    )
    assert float(found.embedding.cosine_mean) == pytest.approx(near.mean(), abs=1e-6)
    assert float(found.embedding.cosine_min) == pytest.approx(near.min(), abs=1e-6)


def test_the_worst_show_both_neighbours() -> None:
    """The first turns from its twin to the stranger; the stranger's own choice was no choice."""
    one = np.float32([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1], [0, 1, 0]])
    other = np.float32([[0, 0.1, 1], [0.9, 0.1, 0], [0, 0, 1], [0, 1, 0]])
    tally = tallied(one, other)
    worst = tally.worst({"s3": 0.5})
    first = worst[0]
    assert (first.id, first.text, first.flipped) == ("s0", "text 0", True)
    assert first.reference == "“text 1” 0.99"
    assert first.answer == "“text 2” 1.00"
    assert float(first.margin or 0) == pytest.approx(0.9939, abs=1e-3)
    assert [w.flipped for w in worst] == sorted((w.flipped for w in worst), reverse=True)
    assert next(w for w in worst if w.id == "s3").difference == 0.5


def test_no_vector_where_the_reference_has_one_is_a_flip() -> None:
    one = np.float32([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    tally = tallied(one, [*one[:3], None])
    assert [row.flipped for row in tally.rows()] == [False, False, True, True]
    assert tally.rows()[3].answer == "no decision"
    assert tally.drift() == 2.0


def test_nothing_is_counted_where_the_reference_has_no_vector() -> None:
    tally = NeighbourFlipCounter("feature-extraction")
    stored = StoredAnswer(input_sha256="0", record=None, margin=None)
    tally.add(Sample(id="a", group="a"), stored, Embedding(vector=np.ones(2)))
    assert (len(tally), tally.drift(), tally.rows()) == (0, None, [])
    assert tally.stats(Limits()).embedding is None


@given(hnp.arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32)))
def test_an_answer_that_is_the_references_has_no_error(vectors: np.ndarray) -> None:
    error = DecisionError(DecisionRule("feature-extraction", 0.01))
    for vector in vectors:
        record = Embedding(vector=vector)
        error.add(record, record, natural=True)
        error.add(record, None, natural=False)  # an extreme: nobody's neighbour
    assert error.largest() == pytest.approx(0.0, abs=1e-12)


def test_vectors_of_another_size_are_none() -> None:
    rows = as_matrix([np.ones(3), None, np.ones(2)], 3)
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, True]
