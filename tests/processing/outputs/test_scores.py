"""softmax/1 and top_k/1 against scipy and a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import softmax as scipy_softmax

from edgeserve.errors import ProcessingError
from edgeserve.processing.arrays import softmax
from edgeserve.processing.steps.top_k import top_k
from edgeserve.tasks.classification.device import classify

logits = st.floats(-80, 80, width=32)


@given(
    arrays(np.float32, array_shapes(min_dims=1, max_dims=3, max_side=7), elements=logits),
    st.integers(-1, 2),
)
def test_softmax_is_scipys(scores: np.ndarray, axis: int) -> None:
    axis = min(axis, scores.ndim - 1)
    result = softmax(scores, axis)
    assert result.dtype == np.float32
    wanted = scipy_softmax(scores.astype(np.float64), axis=axis)
    np.testing.assert_allclose(result, wanted, rtol=3e-6, atol=1e-7)


@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**126), 2.0**126, width=32)))
def test_softmax_never_overflows(scores: np.ndarray) -> None:
    result = softmax(scores, 0)
    assert np.isfinite(result).all()
    assert abs(float(result.sum()) - 1) < 1e-5


def test_softmax_of_a_thousand_classes() -> None:
    scores = np.random.default_rng(0).normal(0, 4, (8, 1000)).astype(np.float32)
    wanted = scipy_softmax(scores.astype(np.float64), axis=1)
    np.testing.assert_allclose(softmax(scores, 1), wanted, rtol=3e-6)


# Few distinct values, so that ties are everywhere.
tied = arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.sampled_from([0.0, -0.0, 0.25, 0.5, 0.75, 1.0, -np.inf, np.inf]),
)
smooth = arrays(np.float32, st.integers(1, 300), elements=st.floats(0, 1, width=32))


@given(tied | smooth, st.integers(1, 70))
def test_top_k_is_a_stable_sort(scores: np.ndarray, k: int) -> None:
    wanted = sorted(range(len(scores)), key=lambda index: -float(scores[index]))[:k]
    assert top_k(scores, k).tolist() == wanted


@given(smooth, st.data())
def test_top_k_refuses_nan(scores: np.ndarray, data: st.DataObject) -> None:
    scores[data.draw(st.integers(0, len(scores) - 1))] = np.nan
    with pytest.raises(ProcessingError, match=f"NaN in 1 of {len(scores)}") as refused:
        top_k(scores, 3)
    assert refused.value.code == "EDGE-PROCESS-009"


def test_classify_keeps_two_for_the_margin() -> None:
    record = classify(np.float32([0.25, 0.75]), 1, ["no", "yes"])
    assert record.top == (("yes", 0.75), ("no", 0.25))
    assert (record.label, record.score, record.index, record.indexes) == ("yes", 0.75, 1, (1, 0))
    assert type(record.index) is int
    assert type(record.score) is float
    assert classify(np.float32([1.0]), 5, []).top == (("0", 1.0),)


@pytest.mark.parametrize("scores", [[-0.02, 0.5], [0.0, 1.02], [0.0, np.inf], [-5.0, 3.0]])
def test_classify_refuses_what_is_no_probability(scores: list[float]) -> None:
    with pytest.raises(ProcessingError, match="softmax") as refused:
        classify(np.float32(scores), 5, [])
    assert refused.value.code == "EDGE-PROCESS-010"


def test_classify_lets_quantized_graphs_pass() -> None:
    assert classify(np.float32([-1 / 256, 257 / 256]), 5, []).index == 1
