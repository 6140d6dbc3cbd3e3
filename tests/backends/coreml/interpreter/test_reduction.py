"""Reductions against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn


class Reductions(nn.Module):
    def forward(self, x: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        return (
            x.sum(1),
            x.mean((0, 2)),
            x.mean((2, 3), keepdim=True),
            x.amax((1, 3)),
            x.amin(0),
            torch.logsumexp(x, 2),
            x.argmax(1),
            x.argmin(-1, keepdim=True),
            torch.linalg.vector_norm(x, dim=1),
            torch.linalg.vector_norm(x, 1, dim=(1, 2)),
            x.std(1),
            x.var((1, 2)),
            p.sum(2).log(),
            x.max(2)[0],
            (x * x).sum(3),
            x.sum(),
            x.mean(),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    wanted, found = converted(Reductions(), torch.randn(2, 3, 4, 5), torch.rand(2, 3, 4))
    agree(found, wanted)
    assert converted.ops >= {
        "reduce_argmax",
        "reduce_argmin",
        "reduce_l2_norm",
        "reduce_max",
        "reduce_mean",
        "reduce_min",
        "reduce_sum",
    }


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


ORACLES: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "reduce_l1_norm": lambda x, a, k: x.abs().sum(a, keepdim=k),
    "reduce_l2_norm": lambda x, a, k: x.square().sum(a, keepdim=k).sqrt(),
    "reduce_log_sum": lambda x, a, k: x.sum(a, keepdim=k).log(),
    "reduce_log_sum_exp": lambda x, a, k: x.exp().sum(a, keepdim=k).log(),
    "reduce_max": lambda x, a, k: x.amax(a, keepdim=k),
    "reduce_mean": lambda x, a, k: x.mean(a, keepdim=k),
    "reduce_min": lambda x, a, k: x.amin(a, keepdim=k),
    "reduce_prod": _prod,
    "reduce_sum": lambda x, a, k: x.sum(a, keepdim=k),
    "reduce_sum_square": lambda x, a, k: x.square().sum(a, keepdim=k),
}


@pytest.mark.parametrize("name", sorted(ORACLES))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_over_any_axes(one_op: Any, agree: Any, name: str, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    keep = data.draw(st.booleans())
    signed = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    x = torch.rand(shape) + 0.1
    found = one_op(name, {"x": x.numpy()}, axes=signed, keep_dims=keep)
    agree(found, [ORACLES[name](x, axes, keep)])


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_over_all_axes(one_op: Any, agree: Any, name: str) -> None:
    x = torch.rand(2, 3) + 0.1
    agree(one_op(name, {"x": x.numpy()}), [ORACLES[name](x, [0, 1], False)])


@pytest.mark.parametrize("dtype", ["int32", "uint16"])
def test_the_first_of_equals_wins(one_op: Any, dtype: str) -> None:
    x = np.array([[1, 3, 3, 0], [2, 2, 2, 2]], np.float32)
    largest = one_op("reduce_argmax", {"x": x}, axis=1, output_dtype=dtype)[0]
    smallest = one_op("reduce_argmin", {"x": x}, axis=1, output_dtype=dtype)[0]
    assert largest.tolist() == [1, 0]
    assert smallest.tolist() == [3, 0]


def test_integers_lose_the_fraction(one_op: Any) -> None:
    x = np.array([[7, 8, -9, 1], [-7, -8, 0, 0]], np.int32)
    assert one_op("reduce_mean", {"x": x}, axes=[1])[0].tolist() == [1, -3]
    assert one_op("reduce_l2_norm", {"x": x}, axes=[1])[0].tolist() == [13, 10]


def test_large_numbers_do_not_overflow(one_op: Any) -> None:
    x = np.array([200.0, 200.0, -200.0], np.float32)
    found = one_op("reduce_log_sum_exp", {"x": x}, axes=[0], opset=ct.target.iOS15)[0]
    np.testing.assert_allclose(found, 200 + np.log(2), rtol=1e-6)
