"""A dozen models that reach every rewrite: converted to three formats, run, equal to PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dev.zoo.catalogue import DOZEN
from dev.zoo.inputs import perturbed_inputs
from dev.zoo.measure import FORMATS, difference, measure


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("location", DOZEN)
def test_a_model_is_the_same_in_every_format(location: str) -> None:
    row = measure(location)
    assert row["export"]["ok"], row
    assert row["export"]["moves"], "the answers stand still, so that comparing them proves nothing"
    assert "+" not in location or row["still"] == []
    failed: dict[str, Any] = {format: row[format] for format in FORMATS if not row[format]["ok"]}
    assert not failed


def test_what_counts_as_different() -> None:
    one = np.array([1.0, 2.0, np.inf], np.float32)
    assert difference(one, one) == 0
    assert difference(one, one + np.array([0, 0.02, 0], np.float32)) == pytest.approx(0.01)
    assert difference(one, np.array([1.0, 2.0, 3.0], np.float32)) == 1
    assert difference(one[:2], np.array([1.0, np.nan], np.float32)) == 1
    assert difference(np.array([3, 4]), np.array([3, 5])) == 1
    assert difference(np.zeros(2, np.float32), np.full(2, 1e-7, np.float32)) == pytest.approx(1e-4)
    assert difference(np.zeros((2, 1)), np.zeros(2)) == 1


def test_further_inputs_are_like_the_example() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    values = torch.randn(3, 4)
    words = torch.tensor([[5, 9, 7, 30]])
    drawn = perturbed_inputs((mask, values, words), 1)
    assert drawn[0].shape == mask.shape
    assert bool((drawn[0].diff() <= 0).all())
    assert drawn[1].abs().max() <= values.abs().max()
    assert not torch.equal(drawn[1], values)
    assert sorted(drawn[2].reshape(-1).tolist()) == [5, 7, 9, 30]
