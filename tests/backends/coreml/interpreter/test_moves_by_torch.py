"""Orders, bands, parts and quantized values against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn


class Moves(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        first, second, third = torch.split(x, [1, 2, 1], 2)
        return (
            x.argsort(-1),
            x.argsort(0, descending=True),
            x.sort(2)[0],
            x.cumsum(1),
            x.tril(),
            x.triu(1),
            torch.where(x > 0, x, x - 1),
            torch.stack([x, 2 * x], 1),
            first * 2,
            second,
            third.squeeze(2),
            x.permute(2, 0, 1),
            x.gather(1, index),
            x + torch.full_like(x, 2.5),
            x.flatten(1),
            x.flip(0, 2),
            x.tile(2, 1, 3),
        )


class Int64(Moves):
    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        return super().forward(x, index.long())


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    x, index = torch.randn(3, 4, 4), torch.randint(0, 4, (3, 2, 4), dtype=torch.int32)
    wanted, found = converted(Int64(), x, index)
    agree(found, wanted)
    assert converted.ops >= {
        "argsort",
        "cumsum",
        "gather_along_axis",
        "select",
        "split",
        "transpose",
    }


@pytest.mark.parametrize(("lower", "upper"), [(-1, 0), (0, -1), (1, 2), (0, 0), (-1, -1)])
def test_a_band(one_op: Any, agree: Any, lower: int, upper: int) -> None:
    x = torch.randn(2, 4, 5)
    wanted = x if upper < 0 else x.tril(upper)
    wanted = wanted if lower < 0 else wanted.triu(-lower)
    agree(one_op("band_part", {"x": x.numpy()}, lower=lower, upper=upper), [wanted], tol=0)


def test_places_of_what_is_not_zero(one_op: Any, agree: Any) -> None:
    x = torch.randint(-1, 2, (3, 4)).float()
    agree(one_op("non_zero", {"x": x.numpy()}), [x.nonzero()], tol=0)


def test_a_new_axis(one_op: Any, agree: Any) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    for axis in (0, 1, -1):
        found = one_op("stack", {"values.0": x.numpy(), "values.1": y.numpy()}, axis=axis)
        agree(found, [torch.stack([x, y], axis)], tol=0)


def test_two_axes_and_constants(one_op: Any, agree: Any) -> None:
    x = torch.randn(2, 3, 4)
    for axis, wanted in ((0, (1, 24)), (1, (2, 12)), (2, (6, 4))):
        agree(one_op("flatten2d", {"x": x.numpy()}, axis=axis), [x.reshape(wanted)], tol=0)
    found = one_op("fill_like", {"ref_tensor": x.numpy()}, value=np.float32(1.5))
    agree(found, [torch.full_like(x, 1.5)], tol=0)


@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_there_and_back(one_op: Any, agree: Any, dtype: str, low: int, high: int) -> None:
    """Each channel by its own scale and zero point, as PyTorch fakes it."""
    x, scale = torch.randn(2, 3, 5) * 3, torch.tensor([0.02, 0.05, 0.01])
    zero = torch.tensor([3, 100, 17])
    points = {"scale": scale.numpy(), "zero_point": zero.numpy().astype(dtype), "axis": 1}
    (stored,) = one_op("quantize", {"input": x.numpy()}, output_dtype=dtype, **points)
    assert stored.dtype == dtype
    shape = (1, 3, 1)
    right = (x / scale.reshape(shape)).round() + zero.reshape(shape)
    agree([stored], [right.clamp(low, high)], tol=0)
    back = one_op("dequantize", {"input": stored}, **points)
    fake = torch.fake_quantize_per_channel_affine(x, scale, zero.int(), 1, low, high)
    agree(back, [fake])
