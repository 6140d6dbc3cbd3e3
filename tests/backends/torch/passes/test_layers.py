"""Layers in other operators: equal to PyTorch, and the old operator is gone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from edgeserve.backends.torch.passes.add_batch_axis import add_batch_axis
from edgeserve.backends.torch.passes.lower_convolution import (
    lower_conv_transpose3d,
    lower_output_padded_conv3d,
    lower_padding,
    split_groups,
)
from edgeserve.backends.torch.passes.lower_division import lower_division
from edgeserve.backends.torch.passes.lower_pooling import (
    lower_adaptive_pool,
    lower_divisor,
    pool_by_slices,
)
from edgeserve.backends.torch.passes.lower_resize import resize_by_lookup
from edgeserve.backends.torch.passes.zero_fully_masked_rows import zero_fully_masked_rows

Tensors = tuple[torch.Tensor, ...]


IMAGE = torch.randn(2, 4, 8, 10)


@pytest.mark.parametrize(
    "how",
    [
        {"kernel_size": 2, "stride": 1, "dilation": 2},
        {"kernel_size": 3, "dilation": (1, 2)},
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1, "dilation": 2},
        {"kernel_size": 3, "stride": 2, "dilation": 2, "ceil_mode": True},
    ],
)
def test_pools_with_gaps_are_compared_slices(
    rewritten: Any, targets: Any, how: dict[str, Any]
) -> None:
    graph, names = rewritten(nn.MaxPool2d(**how), (IMAGE,), pool_by_slices)
    assert names == ("pool_by_slices",)
    assert "max_pool2d.default" not in targets(graph)


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("kind", [nn.MaxPool1d, nn.MaxPool3d])
def test_pools_of_one_and_three_axes_are_too(rewritten: Any, kind: Any, places: bool) -> None:
    image = IMAGE[0] if kind is nn.MaxPool1d else IMAGE
    pool = kind(3, 2, 1, 2, return_indices=places, ceil_mode=True)
    assert rewritten(pool, (image,), pool_by_slices)[1] == ("pool_by_slices",)


@pytest.mark.parametrize("how", [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}])
def test_places_of_a_pool_are_compared_slices(rewritten: Any, how: dict[str, Any]) -> None:
    _, names = rewritten(nn.MaxPool2d(**how, return_indices=True), (IMAGE,), pool_by_slices)
    assert names == ("pool_by_slices",)


def test_ordinary_pools_stay(rewritten: Any) -> None:
    assert rewritten(nn.MaxPool2d(3, 2, 1), (IMAGE,), pool_by_slices)[1] == ()


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.AdaptiveMaxPool2d((3, 4)), IMAGE),
        (nn.AdaptiveMaxPool2d(1), IMAGE),
        (nn.AdaptiveMaxPool3d((2, 5, 3)), torch.randn(2, 4, 5, 6, 7)),
        (nn.AdaptiveAvgPool3d((2, 3, 2)), torch.randn(2, 4, 5, 6, 7)),
    ],
)
def test_adaptive_pools_are_pieces(
    rewritten: Any, targets: Any, module: nn.Module, inputs: torch.Tensor
) -> None:
    graph, names = rewritten(module, (inputs,), lower_adaptive_pool)
    assert names == ("lower_adaptive_pool",)
    assert targets(graph) <= {"slice.Tensor", "amax.default", "mean.dim", "cat.default"}


@pytest.mark.parametrize("how", [{}, {"stride": 1}, {"stride": (2, 3), "padding": 1}])
def test_a_divisor_is_a_product(rewritten: Any, targets: Any, how: dict[str, Any]) -> None:
    module = nn.AvgPool2d(3, **how, divisor_override=5)
    graph, names = rewritten(module, (IMAGE,), lower_divisor)
    assert names == ("lower_divisor",)
    assert "mul.Tensor" in targets(graph)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(4, 6, (2, 3), padding="same"),
        nn.Conv2d(4, 4, 4, padding="same", groups=2, dilation=3),
        nn.Conv2d(4, 6, 3, padding="valid", bias=False),
    ],
)
def test_padding_is_written_out(rewritten: Any, targets: Any, module: nn.Module) -> None:
    graph, names = rewritten(module, (IMAGE,), lower_padding)
    assert names == ("lower_padding",)
    assert "conv2d.padding" not in targets(graph)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("how", [{"padding": 1}, {"padding": 0}, {"padding": 2, "dilation": 2}])
def test_what_a_transposed_convolution_adds_is_written_out(
    rewritten: Any, how: Any, bias: bool
) -> None:
    module = nn.ConvTranspose2d(4, 6, 3, stride=(3, 2), output_padding=(2, 1), bias=bias, **how)
    assert rewritten(module, (IMAGE,), lower_padding)[1] == ("lower_padding",)


@pytest.mark.parametrize(
    ("kind", "how", "changed"),
    [
        (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2, "padding": 1}, True),
        (nn.ConvTranspose2d, {"kernel_size": (5, 2), "stride": (1, 2), "padding": (0, 1)}, True),
        (nn.ConvTranspose2d, {"kernel_size": 3, "padding": 2, "dilation": 2}, True),
        (nn.ConvTranspose1d, {"kernel_size": 5, "stride": 2, "padding": 2}, True),
        (nn.ConvTranspose1d, {"kernel_size": 3, "stride": 2, "dilation": 3, "groups": 2}, True),
        (nn.ConvTranspose2d, {"kernel_size": 4, "stride": 2, "padding": 1}, False),
        (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2}, False),
    ],
)
def test_padding_that_gives_no_multiple_is_cut_off(
    rewritten: Any, targets: Any, kind: Any, how: Any, changed: bool
) -> None:
    x = IMAGE if kind is nn.ConvTranspose2d else IMAGE[:, :, 0]
    graph, names = rewritten(kind(4, 6, **how), (x,), lower_padding)
    assert names == (("lower_padding",) if changed else ())
    assert ("slice.Tensor" in targets(graph)) is changed


@pytest.mark.parametrize(
    "module",
    [nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(4, 6, 3, 2, 1), nn.AvgPool1d(2), nn.MaxPool1d(2)],
)
def test_one_sample_gets_a_batch_axis(rewritten: Any, module: nn.Module) -> None:
    assert rewritten(module, (IMAGE[0, :, 0],), add_batch_axis)[1] == ("add_batch_axis",)
    assert rewritten(module, (IMAGE[:, :, 0],), add_batch_axis)[1] == ()


def test_one_channel_of_three_axes_is_padded_before(rewritten: Any, targets: Any) -> None:
    module = nn.Conv3d(1, 3, (2, 1, 2), (2, 1, 1), (0, 0, 1))
    graph, _ = rewritten(module, (torch.randn(2, 1, 5, 4, 3),), lower_padding)
    assert targets(graph) == {"constant_pad_nd.default", "conv3d.default"}
    assert (
        rewritten(nn.Conv3d(2, 3, 3, 2, 1), (torch.randn(2, 2, 5, 4, 3),), lower_padding)[1] == ()
    )


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_groups_go_one_by_one(rewritten: Any, groups: int, bias: bool) -> None:
    module = nn.ConvTranspose2d(4, 8, (2, 3), (2, 1), 1, (1, 0), groups=groups, bias=bias)
    names = rewritten(module, (IMAGE,), split_groups, lower_padding)[1]
    assert names == ("split_groups", "lower_padding")


@pytest.mark.parametrize("how", [{"padding": 1}, {"padding": "same", "bias": False}])
def test_groups_of_three_axes_go_one_by_one(rewritten: Any, how: dict[str, Any]) -> None:
    module = nn.Conv3d(4, 8, (3, 1, 3), groups=4, **how)
    graph, names = rewritten(module, (torch.randn(2, 4, 4, 5, 6),), split_groups, lower_padding)
    assert names[0] == "split_groups"
    assert len([node for node in graph.graph.nodes if "conv3d" in str(node.target)]) == 4


@pytest.mark.parametrize(
    "how",
    [
        {"stride": 2},
        {"stride": (1, 2, 3), "padding": (1, 0, 2), "output_padding": (0, 1, 2)},
        {"stride": 2, "groups": 2, "bias": False, "padding": 2, "dilation": (1, 2, 2)},
    ],
)
def test_three_axes_transposed_are_an_ordinary_convolution(
    rewritten: Any, targets: Any, how: dict[str, Any]
) -> None:
    module = nn.ConvTranspose3d(4, 6, 3, **how)
    graph, names = rewritten(module, (torch.randn(2, 4, 4, 5, 6),), lower_conv_transpose3d)
    assert names == ("lower_conv_transpose3d",)
    assert "conv_transpose3d.input" not in targets(graph)
    uneven = rewritten(module, (torch.randn(2, 4, 4, 5, 6),), lower_output_padded_conv3d)[1]
    assert uneven == (("lower_output_padded_conv3d",) if "output_padding" in how else ())


@pytest.mark.parametrize(
    "how",
    [
        {"size": (5, 25)},
        {"scale_factor": 1.7},
        {"size": (11, 4), "mode": "nearest-exact"},
        {"scale_factor": (0.4, 2.0), "mode": "nearest-exact"},
    ],
)
def test_the_nearest_is_looked_up(rewritten: Any, targets: Any, how: dict[str, Any]) -> None:
    graph, names = rewritten(lambda x: functional.interpolate(x, **how), (IMAGE,), resize_by_lookup)
    assert names == ("resize_by_lookup",)
    assert targets(graph) == {"index_select.default"}


def test_multiples_of_a_size_stay(rewritten: Any) -> None:
    resize = lambda x: functional.interpolate(x, scale_factor=2)  # noqa: E731
    assert rewritten(resize, (IMAGE,), resize_by_lookup)[1] == ()


def test_a_division_rounds_down_as_pytorch_does(rewritten: Any, targets: Any) -> None:
    x = torch.tensor([1.0, 0.3, -1.0, 7.0, -7.0, 0.0, 5.5])
    y = torch.tensor([0.1, 0.1, 0.3, -2.0, 2.0, 3.0, -5.5])
    both = lambda x, y: (torch.div(x, y, rounding_mode="floor"), x // 0.1, x // y)  # noqa: E731
    graph, names = rewritten(both, (x, y), lower_division)
    assert names == ("lower_division",)
    assert not {"floor_divide.default", "div.Tensor_mode"} & targets(graph)


def test_rows_that_see_nothing_are_blank(rewritten: Any) -> None:
    seen = torch.rand(2, 1, 5, 5) > 0.5
    seen[:, :, 2:4] = False

    def attend(x: torch.Tensor, seen: torch.Tensor) -> Any:
        once = functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
        return functional.scaled_dot_product_attention(once, x, x, attn_mask=seen)

    graph, names = rewritten(attend, (torch.randn(2, 3, 5, 4), seen), zero_fully_masked_rows)
    assert names == ("zero_fully_masked_rows",)
    (mask,) = {
        node.kwargs.get("attn_mask") or node.args[3]
        for node in graph.graph.nodes
        if "scaled_dot" in str(node.target)
    }
    fx.Interpreter(graph).run(torch.randn(2, 3, 5, 4), seen)
    assert "logical_or" in str(mask.target)


def test_masks_of_keys_alone_stay(rewritten: Any) -> None:
    seen = torch.tensor([True, True, False]).reshape(1, 1, 1, 3)
    attend = lambda x, m: functional.scaled_dot_product_attention(x, x, x, attn_mask=m)  # noqa: E731
    assert rewritten(attend, (torch.randn(1, 2, 3, 4), seen), zero_fully_masked_rows)[1] == ()
