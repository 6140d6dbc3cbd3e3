"""The scale that differences are measured on: an offset hides nothing, NaN is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.validate.compare.tensors import TensorComparison


def _difference(reference: list[np.ndarray], answer: list[np.ndarray]) -> TensorComparison:
    found = TensorComparison(1e-3)
    for i, (wanted, got) in enumerate(zip(reference, answer, strict=True)):
        found.add(f"input {i}", True, {"y": wanted}, {"y": got})
    return found


def _waves(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.tanh(rng.standard_normal((1, 4))).astype(np.float32) for _ in range(n)]


def test_an_offset_does_not_hide_an_inverted_output() -> None:
    waves = _waves(20)
    found = _difference([1000 + w for w in waves], [1000 - w for w in waves])
    assert found.scale("y") == pytest.approx(1000 / 100, rel=0.01)
    assert max(found.of(i) for i in range(20)) > 0.1


def test_a_small_offset_is_measured_by_the_range() -> None:
    values = np.concatenate([5 + w for w in _waves(20)])
    found = _difference([5 + w for w in _waves(20)], [5 + w for w in _waves(20)])
    assert found.scale("y") == pytest.approx(values.max() - values.min(), rel=1e-5)


def test_values_around_zero_are_measured_by_their_magnitude() -> None:
    values = np.concatenate(_waves(20))
    found = _difference(_waves(20), _waves(20))
    assert found.scale("y") == pytest.approx(np.abs(values).max(), rel=1e-5)


def test_a_reference_without_numbers_is_noticed() -> None:
    nan = np.array([[1.0, np.nan]], np.float32)
    lost = np.array([[np.inf, np.inf]], np.float32)
    mask = np.array([[1.0, -np.inf]], np.float32)
    found = _difference([mask, nan, lost], [mask, nan, lost])
    assert found.senseless() == {"y": "NaN on input 1"}
    assert _difference([lost], [lost]).senseless() == {"y": "infinite throughout on input 0"}
