"""pool/1 and l2_normalize/1 where the conformance cases, which are JSON, cannot go."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgeserve.errors import ProcessingError
from edgeserve.processing.steps.l2_normalize import l2_normalize
from edgeserve.processing.steps.pool import PoolMode, pool
from edgeserve.tasks.embedding.device import embedding

MODES = get_args(PoolMode)
FLOATS = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38])
def test_what_stands_at_padding_has_no_say(mode: PoolMode, odd: float) -> None:
    tokens = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    mask = np.array([[0, 1, 1, 0], [1, 1, 1, 1]])
    spoiled = tokens.copy()
    spoiled[0, [0, 3]] = odd
    np.testing.assert_allclose(pool(spoiled, mask, mode), pool(tokens, mask, mode), rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_token_holds_shows(mode: PoolMode) -> None:
    tokens = np.ones((2, 3, 2), np.float32)
    tokens[0, :, 1] = np.nan
    pooled = pool(tokens, np.ones((2, 3), np.int64), mode)
    assert np.isnan(pooled[0, 1])
    assert np.isfinite(pooled[[0, 1, 1], [0, 0, 1]]).all()
    with pytest.raises(ProcessingError) as refused:
        embedding(pooled[0])
    assert refused.value.code == "EDGE-PROCESS-009"


@pytest.mark.parametrize("mode", MODES)
def test_no_tokens_and_no_samples(mode: PoolMode) -> None:
    assert pool(np.zeros((2, 0, 3), np.float32), np.zeros((2, 0)), mode).tolist() == [[0] * 3] * 2
    assert pool(np.zeros((0, 4, 3), np.float32), np.zeros((0, 4)), mode).shape == (0, 3)


@given(
    arrays(np.float32, (3, 5, 4), elements=FLOATS),
    arrays(np.int64, (3, 5), elements=st.integers(0, 1)),
)
def test_padding_more_changes_nothing(tokens: np.ndarray, mask: np.ndarray) -> None:
    wide = np.pad(tokens, [(0, 0), (2, 3), (0, 0)], constant_values=7)
    for mode in MODES:
        wanted, found = pool(tokens, mask, mode), pool(wide, np.pad(mask, [(0, 0), (2, 3)]), mode)
        assert (found.dtype, found.shape) == (np.float32, (3, 4))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(tokens).max())


@given(arrays(np.float32, (2, 6), elements=st.floats(-(2.0**126), 2.0**126, width=32)))
def test_unit_vectors_are_one_long(values: np.ndarray) -> None:
    unit = l2_normalize(values)
    exact = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
    for row, length, given_row in zip(unit, exact, values, strict=True):
        wanted = 1.0 if length >= 1e-12 else length / 1e-12
        assert np.linalg.norm(row.astype(np.float64)) == pytest.approx(wanted, rel=1e-5, abs=1e-30)
        assert np.array_equal(np.signbit(row), np.signbit(given_row))
