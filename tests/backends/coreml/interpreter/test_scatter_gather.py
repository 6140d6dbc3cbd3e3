"""Reading and writing at indices, against loops that follow the definition word by word."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import coremltools as ct
import numpy as np
import pytest

from edgeserve.errors import MilError

RNG = np.random.default_rng(5)
IOS15, IOS16, IOS17 = ct.target.iOS15, ct.target.iOS16, ct.target.iOS17

COMBINE: dict[str, Callable[[float, float], float]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "mul": lambda old, new: old * new,
    "div": lambda old, new: old / new,
    "max": max,
    "min": min,
}


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2.0, shape).astype(np.float32)


def indices(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.int32)


@pytest.mark.parametrize(("axis", "batch"), [(1, 1), (2, 1), (3, 1), (2, 2), (-1, 2), (0, 0)])
def test_gather_with_batches(one_op: Any, axis: int, batch: int) -> None:
    """By definition, out[p.., i.., q..] is x[p.., indices[batch of p, i..], q..]."""
    x = floats(2, 3, 4, 5)
    at = axis % x.ndim
    index = indices(x.shape[at], *x.shape[:batch], 2, 3)
    (found,) = one_op(
        "gather", {"x": x, "indices": index}, opset=IOS16, axis=axis, batch_dims=batch
    )
    before, after = x.shape[:at], x.shape[at + 1 :]
    wanted = np.zeros((*before, 2, 3, *after), np.float32)
    for p in np.ndindex(before):
        for i in np.ndindex(2, 3):
            wanted[(*p, *i)] = x[(*p, index[(*p[:batch], *i)])]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_gather_at_tuples(one_op: Any, batch: int) -> None:
    x = floats(2, 3, 4, 5)
    depth = 2
    sizes = x.shape[batch : batch + depth]
    index = np.stack([indices(s, *x.shape[:batch], 6) for s in sizes], axis=-1)
    (found,) = one_op("gather_nd", {"x": x, "indices": index}, opset=IOS16, batch_dims=batch)
    wanted = np.zeros((*x.shape[:batch], 6, *x.shape[batch + depth :]), np.float32)
    for place in np.ndindex(*x.shape[:batch], 6):
        wanted[place] = x[(*place[:batch], *index[place])]
    np.testing.assert_array_equal(found, wanted)


def test_a_single_index_drops_the_axis(one_op: Any) -> None:
    x = floats(3, 4)
    (found,) = one_op("gather", {"x": x}, indices=np.int32(2), axis=1)
    np.testing.assert_array_equal(found, x[:, 2])


@pytest.mark.parametrize("mode", sorted(COMBINE))
def test_scatter_in_every_mode(one_op: Any, mode: str) -> None:
    """Repeated indices are taken one after another: the last update wins, sums add all."""
    data = floats(3, 4, 2)
    index = np.array([1, 3, 1], np.int32)
    updates = floats(3, 3, 2)
    wanted = data.astype(np.float64)
    for p, i, q in itertools.product(range(3), range(3), range(2)):
        place = (p, index[i], q)
        wanted[place] = COMBINE[mode](wanted[place], updates[p, i, q])
    tensors = {"data": data, "indices": index, "updates": updates}
    (found,) = one_op("scatter", tensors, axis=-2, mode=mode)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("mode", sorted(COMBINE))
def test_scatter_along_an_axis(one_op: Any, mode: str) -> None:
    data, index, updates = floats(2, 5, 3), indices(5, 2, 4, 3), floats(2, 4, 3)
    wanted = data.astype(np.float64)
    for place in np.ndindex(index.shape):
        p, _, q = place
        there = (p, index[place], q)
        wanted[there] = COMBINE[mode](wanted[there], updates[place])
    tensors = {"data": data, "indices": index, "updates": updates}
    (found,) = one_op("scatter_along_axis", tensors, axis=1, mode=mode)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("mode", sorted(COMBINE))
def test_scatter_at_tuples(one_op: Any, mode: str) -> None:
    data = floats(3, 4, 2)
    index = np.stack([indices(3, 2, 5), indices(4, 2, 5)], axis=-1)
    updates = floats(2, 5, 2)
    wanted = data.astype(np.float64)
    for place in np.ndindex(2, 5):
        for q in range(2):
            there = (*index[place], q)
            wanted[there] = COMBINE[mode](wanted[there], updates[(*place, q)])
    tensors = {"data": data, "indices": index, "updates": updates}
    (found,) = one_op("scatter_nd", tensors, mode=mode)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_whole_numbers_are_divided_downwards(one_op: Any) -> None:
    data = np.array([7, -7, 9], np.int32)
    tensors = {
        "data": data,
        "indices": np.array([0, 1], np.int32),
        "updates": np.array([2, 2], np.int32),
    }
    (found,) = one_op("scatter", tensors, mode="div")
    assert found.tolist() == [3, -4, 9]


def test_the_inputs_of_a_scatter_stay(one_op: Any) -> None:
    tensors = {"data": floats(3), "indices": indices(3, 1), "updates": floats(1)}
    before = tensors["data"].copy()
    one_op("scatter", tensors)
    np.testing.assert_array_equal(tensors["data"], before)


NEGATIVE = np.array([-1, 0], np.int32)
OUTSIDE = np.array([0, 4], np.int32)


def test_negative_indices_count_from_the_end(one_op: Any) -> None:
    x = floats(4, 2)
    (found,) = one_op("gather", {"x": x, "indices": NEGATIVE}, opset=IOS15)
    np.testing.assert_array_equal(found, x[[-1, 0]])


@pytest.mark.parametrize(
    ("index", "attributes"),
    [(OUTSIDE, {}), (NEGATIVE, {"validate_indices": True}), (-OUTSIDE - 1, {})],
)
def test_what_is_undefined_on_a_device_is_an_error(
    one_op: Any, index: np.ndarray, attributes: dict[str, Any]
) -> None:
    with pytest.raises(MilError, match="EDGE-MIL-006"):
        one_op("gather", {"x": floats(4, 2), "indices": index}, opset=IOS17, **attributes)
    tensors = {"data": floats(4, 2), "indices": index, "updates": floats(2, 2)}
    with pytest.raises(MilError, match="EDGE-MIL-006"):
        one_op("scatter", tensors, opset=IOS17, **attributes)
