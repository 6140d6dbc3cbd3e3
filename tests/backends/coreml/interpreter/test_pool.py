"""Pooling against PyTorch: ranks, paddings, strides, hanging windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
MAXIMUM = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


class Pools(nn.Module):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.avg_pool1d(x, 3, 2, 1),
            functional.max_pool1d(x, 2),
            functional.avg_pool2d(y, 3, 2, 1, count_include_pad=False),
            functional.avg_pool2d(y, (2, 3), (2, 1), ceil_mode=True),
            functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True),
            functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            functional.max_pool2d(y, 3, 2, 1),
            functional.max_pool2d(y, 3, 2, 1, ceil_mode=True),
            functional.avg_pool3d(z, 2, 1, 1),
            functional.max_pool3d(z, (2, 1, 2), (2, 1, 1)),
            functional.adaptive_avg_pool2d(y, 1),
            functional.adaptive_max_pool2d(y, 1),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    inputs = torch.randn(2, 3, 11), torch.randn(2, 3, 7, 8) - 5, torch.randn(1, 2, 4, 5, 3)
    wanted, found = converted(Pools(), *inputs)
    agree(found, wanted)
    assert converted.ops >= {"avg_pool", "max_pool"}


def plain_windows(x: Tensor, kernel: list[int], strides: list[int], pads: list[int]) -> Tensor:
    """Every window's elements on the last axis, padding as NaN; nothing hangs over."""
    flat = [n for axis in reversed(range(len(kernel))) for n in pads[2 * axis : 2 * axis + 2]]
    windows = functional.pad(x, flat, value=math.nan)
    for axis, (side, step) in enumerate(zip(kernel, strides, strict=True), 2):
        windows = windows.unfold(axis, side, step)
    return windows.flatten(2 + len(kernel))


@st.composite
def geometries(draw: st.DrawFn, deepest: int = 3) -> dict[str, Any]:
    rank = draw(st.integers(1, deepest))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    kernel, strides, sizes = each(1, 4), each(1, 3), each(4, 8)
    rule = draw(st.sampled_from(["valid", "custom", "same", "same_lower"]))
    pads = [0] * (2 * rank)
    if rule == "custom":
        pads = [draw(st.integers(0, kernel[axis // 2] - 1)) for axis in range(2 * rank)]
    if rule.startswith("same"):
        for axis, (size, side, step) in enumerate(zip(sizes, kernel, strides, strict=True)):
            total = max((math.ceil(size / step) - 1) * step + side - size, 0)
            halves = [total // 2, total - total // 2]
            pads[2 * axis : 2 * axis + 2] = halves if rule == "same" else halves[::-1]
    return {"sizes": sizes, "kernel": kernel, "strides": strides, "rule": rule, "pads": pads}


def pooled(one_op: Any, name: str, x: Tensor, g: dict[str, Any], **attributes: Any) -> Any:
    if g["rule"] == "custom":
        attributes["pad"] = g["pads"]
    return one_op(
        name,
        {"x": x.numpy()},
        kernel_sizes=g["kernel"],
        strides=g["strides"],
        pad_type=g["rule"],
        **attributes,
    )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(g=geometries(), inside=st.booleans())
def test_any_average(one_op: Any, agree: Any, g: dict[str, Any], inside: bool) -> None:
    x = torch.randn(2, 2, *g["sizes"])
    windows = plain_windows(x, g["kernel"], g["strides"], g["pads"])
    wanted = windows.nanmean(-1) if inside else windows.nan_to_num().mean(-1)
    found = pooled(one_op, "avg_pool", x, g, exclude_padding_from_average=inside)
    agree(found, [wanted])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(g=geometries())
def test_any_maximum(one_op: Any, agree: Any, g: dict[str, Any]) -> None:
    x = torch.randn(2, 2, *g["sizes"]) - 9
    windows = plain_windows(x, g["kernel"], g["strides"], g["pads"])
    agree(pooled(one_op, "max_pool", x, g), [windows.nan_to_num(-math.inf).amax(-1)], tol=0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(g=geometries(deepest=2))
def test_any_l2(one_op: Any, agree: Any, g: dict[str, Any]) -> None:
    x = torch.randn(2, 2, *g["sizes"])
    windows = plain_windows(x, g["kernel"], g["strides"], g["pads"])
    agree(pooled(one_op, "l2_pool", x, g), [windows.square().nansum(-1).sqrt()])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_windows_that_hang_over(one_op: Any, agree: Any, data: st.DataObject) -> None:
    """PyTorch's ceil_mode, with its own limit on padding, and strides within the kernel."""
    rank = data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [data.draw(st.integers(1, side)) for side in kernel]
    pads = [data.draw(st.integers(0, side // 2)) for side in kernel]
    x = torch.randn(1, 2, *[data.draw(st.integers(4, 9)) for _ in range(rank)])
    inside = data.draw(st.booleans())
    g = {
        "kernel": kernel,
        "strides": strides,
        "rule": "custom",
        "pads": np.repeat(pads, 2).tolist(),
    }
    average = pooled(one_op, "avg_pool", x, g, ceil_mode=True, exclude_padding_from_average=inside)
    agree(average, [AVERAGE[rank](x, kernel, strides, pads, True, not inside)])
    largest = pooled(one_op, "max_pool", x, g, ceil_mode=True)
    agree(largest, [MAXIMUM[rank](x, kernel, strides, pads, 1, True)], tol=0)


@pytest.mark.parametrize(
    ("shape", "name", "wanted"),
    [
        ((1, 1, 2), "avg_pool", [0.5, 1.5]),
        ((1, 1, 2, 2), "avg_pool", [0.25, 0.75, 1, 2.5]),
        ((1, 1, 2, 2, 2), "avg_pool", [0.125, 0.375, 0.5, 1.25, 0.75, 1.75, 2, 4.5]),
        ((1, 1, 2, 2), "max_pool", [1, 2, 3, 4]),
        ((1, 1, 2), "l2_pool", [1, 2.236068]),
        ((1, 1, 2, 2), "l2_pool", [1, 2.236068, 3.162278, 5.477226]),
    ],
)
def test_what_coremltools_expects_of_the_runtime(
    one_op: Any, shape: tuple[int, ...], name: str, wanted: list[float]
) -> None:
    """Numbers of its own tests for ``same_lower``: 1, 2, 3, ... under windows of 2."""
    x = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    (found,) = one_op(name, {"x": x}, kernel_sizes=[2] * (len(shape) - 2), pad_type="same_lower")
    np.testing.assert_allclose(found.reshape(-1), wanted, rtol=1e-6)
