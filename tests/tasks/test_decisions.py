"""Decisions: the language-neutral cases, and laws that hold for any pair of classifications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist

from edgeserve.errors import ProcessingError
from edgeserve.tasks import (
    REGISTRY,
    DecisionRule,
    compare,
    decided,
    describe,
    margin,
    same,
    same_top,
    sure_margin,
)
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.detection import Detection
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances, nearest_neighbours, unit_vectors
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode, encode
from edgeserve.types.records import Record

_CASES = Path(__file__).parents[2] / "spec" / "conformance" / "tasks"
LISTING = json.loads((_CASES / "cases.json").read_text())
UNITS = json.loads((_CASES / "units.json").read_text())


def record(value: dict[str, Any]) -> Record:
    return decode(json.dumps(value), AnyRecord)


def test_the_cases_use_the_margins_in_force() -> None:
    margins = {task: sure_margin(task) for task in REGISTRY}
    assert margins.pop("feature-extraction") == LISTING["neighbour_margin"]
    assert margins.pop("depth-estimation") == 0, "always decided"
    assert set(margins.values()) == {LISTING["decided_margin"]}


def test_neighbours_are_scipys() -> None:
    """In more rows than are looked at together, and in float32 as models give them."""
    vectors = np.random.default_rng(0).normal(size=(1100, 24)).astype(np.float32)
    cosines = 1 - cdist(vectors, vectors, "cosine")
    np.fill_diagonal(cosines, -np.inf)
    ranked = np.sort(cosines, axis=1)
    found, sure = nearest_neighbours(vectors)
    np.testing.assert_array_equal(found, cosines.argmax(axis=1))
    np.testing.assert_allclose(sure, ranked[:, -1] - ranked[:, -2], rtol=0, atol=1e-12)


def test_distances_keep_their_digits() -> None:
    """Two vectors a millionth apart: ``1 - cosine`` in float64 would be noise."""
    angle = 1e-6
    first = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.0, np.nan]])
    second = np.array([[np.cos(angle), np.sin(angle)], [-4.0, 3.0], [1.0, 0.0], [1.0, 0.0]])
    apart = cosine_distances(first, second)
    assert apart[0] == pytest.approx(angle**2 / 2, rel=1e-6)
    assert apart[1:3] == pytest.approx([1.0, 1.0])
    assert np.isnan(apart[3])


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(hnp.arrays(np.float32, st.tuples(st.integers(0, 9), st.integers(1, 4)), elements=FINITE))
def test_laws_of_neighbours(vectors: np.ndarray) -> None:
    found, sure = nearest_neighbours(vectors)
    count = len(vectors)
    assert (found != np.arange(count)).all()
    assert ((found >= 0) & (found < count)).all() if count > 1 else (found == -1).all()
    assert ((sure >= 0) & (sure <= 2 + 1e-12)).all()
    lengths = np.linalg.norm(unit_vectors(vectors), axis=1)
    np.testing.assert_allclose(lengths, vectors.any(axis=1).astype(float), atol=1e-12)


def test_neighbours_want_a_matrix() -> None:
    with pytest.raises(ValueError, match=r"\(3,\)"):
        nearest_neighbours(np.ones(3))


def test_an_embedding_in_words() -> None:
    vector = Embedding(vector=np.ones(384))
    assert describe(vector) == "vector of 384"
    assert margin(vector) is None
    assert not decided(vector)


@st.composite
def classifications(draw: st.DrawFn) -> Classification:
    """Whatever a classifier of a few classes can answer, probabilities in exact 1/1024."""
    classes = draw(st.integers(1, 6))
    cuts = sorted(draw(st.lists(st.integers(0, 1024), min_size=classes - 1, max_size=classes - 1)))
    scores = np.diff([0, *cuts, 1024]) / 1024
    order = np.argsort(-scores, kind="stable").tolist()
    known = draw(st.booleans())
    return Classification(
        label=f"c{order[0] % 4}",
        score=float(scores[order[0]]),
        top=tuple((f"c{index % 4}", float(scores[index])) for index in order),
        index=order[0] if known else -1,
        indexes=tuple(order) if known else (),
    )


@given(classifications(), classifications(), st.integers(1, 6))
def test_laws(first: Classification, second: Classification, k: int) -> None:
    assert same(first, first)
    assert same_top(first, first, k)
    assert same(first, second) == same(second, first)
    assert same_top(first, second, k) == same_top(second, first, k)
    sure = margin(first)
    assert sure is not None
    assert 0 <= sure <= 1
    # Keeping the best class only can make a decision look less sure, never surer.
    alone = msgspec.structs.replace(first, top=first.top[:1], indexes=first.indexes[:1])
    bound = margin(alone)
    assert bound is not None
    assert bound <= sure


@given(classifications())
def test_json_keeps_every_answer(first: Classification) -> None:
    again = decode(encode(first), AnyRecord)
    assert same(first, again)
    assert margin(first) == margin(again)


def test_records_of_two_tasks_are_not_compared() -> None:
    boxes = Detection(boxes=np.zeros((1, 4)), scores=np.ones(1), labels=("cat",))
    label = Classification(label="cat", score=1.0, top=(("cat", 1.0),))
    for pair in ((boxes, label), (label, boxes)):
        with pytest.raises(ProcessingError, match="EDGE-PROCESS-013"):
            same(*pair)
    with pytest.raises(ProcessingError, match="wanted a Classification"):
        same_top(boxes, boxes)


@pytest.mark.parametrize("case", UNITS["cases"], ids=lambda case: case["id"])
def test_nothing_flips_against_itself(case: dict[str, Any]) -> None:
    rule = DecisionRule(case["task"], sure_margin(case["task"]), case.get("threshold", 0.0))
    reference = record(case["reference"])
    alike = compare(rule, reference, reference, case.get("sure"))
    assert (alike.flips, alike.decided_flips) == (0, 0)


def test_as_many_indexes_as_entries() -> None:
    with pytest.raises(ValueError, match="1 indexes for 2 entries"):
        Classification(label="a", score=1.0, top=(("a", 1.0), ("b", 0.0)), index=0, indexes=(0,))
