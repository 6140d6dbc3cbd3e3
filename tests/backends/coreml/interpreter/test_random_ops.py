"""Random ops: repeatable by their seed, and distributed as they say; never Apple's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeserve.errors import MilError

SHAPE = np.array([100, 200], np.int32)
OPS: list[tuple[str, dict[str, Any]]] = [
    ("random_uniform", {"low": np.float32(-2), "high": np.float32(3)}),
    ("random_normal", {"mean": np.float32(1), "stddev": np.float32(2)}),
    ("random_bernoulli", {"prob": np.float32(0.3)}),
]


@pytest.mark.parametrize(("name", "attributes"), OPS)
def test_a_seed_repeats_and_another_does_not(
    one_op: Any, name: str, attributes: dict[str, Any]
) -> None:
    draws = [one_op(name, {"shape": SHAPE}, seed=seed, **attributes)[0] for seed in (5, 5, 6)]
    assert draws[0].shape == (100, 200)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


@pytest.mark.parametrize(
    ("name", "attributes"), [*OPS, ("random_categorical", {})], ids=lambda each: str(each)[:20]
)
def test_without_a_seed_it_is_refused(one_op: Any, name: str, attributes: dict[str, Any]) -> None:
    tensors = {"x": np.ones(3, np.float32)} if "categorical" in name else {"shape": SHAPE}
    with pytest.raises(MilError, match=name) as caught:
        one_op(name, tensors, **attributes)
    assert caught.value.code == "EDGE-MIL-031"


def test_the_distributions(one_op: Any) -> None:
    """20000 draws: mean and deviation within five standard errors of the right ones."""
    rights = [(0.5, 5 / np.sqrt(12)), (1, 2), (0.3, np.sqrt(0.21))]
    for (name, attributes), (mean, deviation) in zip(OPS, rights, strict=True):
        (found,) = one_op(name, {"shape": SHAPE}, seed=1, **attributes)
        assert abs(found.mean() - mean) < 5 * deviation / np.sqrt(found.size), name
        assert abs(found.std() - deviation) < 0.05 * deviation, name
    uniform = one_op("random_uniform", {"shape": SHAPE}, seed=1, **OPS[0][1])[0]
    assert uniform.min() >= -2
    assert uniform.max() < 3


@pytest.mark.parametrize("mode", ["logits", "probs"])
def test_categories_by_their_weights(one_op: Any, mode: str) -> None:
    """Weights need not sum to 1; each row is a distribution of its own."""
    weights = np.float32([[1, 2, 5], [4, 0, 4]])
    x = np.log(weights + 1e-30) if mode == "logits" else weights
    (found,) = one_op("random_categorical", {"x": x}, mode=mode, size=8000, seed=3)
    assert found.shape == (2, 8000)
    assert found.dtype == np.float32
    shares = np.stack([(found == index).mean(1) for index in range(3)], 1)
    np.testing.assert_allclose(shares, weights / 8, atol=0.03)
    assert (found[1] != 1).all()
