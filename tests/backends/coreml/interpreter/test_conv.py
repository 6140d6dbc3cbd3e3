"""Convolution and its transpose against PyTorch: ranks, paddings, strides, dilations, groups."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder, Function, Placeholder, Program, types
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from edgeserve.errors import MilError

CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
BACK = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2)
        self.two = nn.Conv2d(4, 6, (3, 2), padding="same")
        self.deep = nn.Conv2d(4, 8, 3, padding=(1, 0), groups=4, bias=False)
        self.three = nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1)
        self.up_one = nn.ConvTranspose1d(4, 6, 4, stride=3, padding=1, groups=2)
        self.up_two = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
        self.up_three = nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False)

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (
            self.one(x),
            self.two(y),
            self.deep(y),
            self.three(z),
            self.up_one(x),
            self.up_two(y),
            self.up_three(z),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    inputs = torch.randn(2, 4, 11), torch.randn(2, 4, 7, 6), torch.randn(1, 2, 4, 5, 3)
    wanted, found = converted(Convolutions(), *inputs)
    agree(found, wanted)
    assert converted.ops >= {"conv", "conv_transpose"}


def same_pads(sizes: list[int], spans: list[int], strides: list[int], lower: bool) -> list[int]:
    """TensorFlow's SAME, flat for torch's pad: last axis first, before and after."""
    flat: list[int] = []
    for size, span, stride in reversed(list(zip(sizes, spans, strides, strict=True))):
        total = max((int(np.ceil(size / stride)) - 1) * stride + span - size, 0)
        small, big = total // 2, total - total // 2
        flat += [big, small] if lower else [small, big]
    return flat


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.sampled_from([1, 2, 2, 3]))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    groups = draw(st.sampled_from([1, 1, 2]))
    return {
        "rank": rank,
        "groups": groups,
        "sizes": each(5, 8),
        "kernel": each(1, 3),
        "strides": each(1, 3),
        "dilations": each(1, 2),
        "bias": draw(st.booleans()),
        "pad": [draw(st.integers(0, 3)) for _ in range(2 * rank)],
        "rule": draw(st.sampled_from(["valid", "custom", "same", "same_lower"])),
        "channels": groups * draw(st.integers(1, 2)),
        "filters": groups * draw(st.integers(1, 2)),
    }


def padding_of(g: dict[str, Any]) -> list[int]:
    """What torch's pad takes."""
    spans = [(k - 1) * d + 1 for k, d in zip(g["kernel"], g["dilations"], strict=True)]
    if g["rule"] == "custom":
        pairs = list(zip(g["pad"][::2], g["pad"][1::2], strict=True))
        return [amount for pair in reversed(pairs) for amount in pair]
    if g["rule"] == "valid":
        return [0] * (2 * g["rank"])
    return same_pads(g["sizes"], spans, g["strides"], g["rule"] == "same_lower")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(g=geometries())
def test_any_convolution(one_op: Any, agree: Any, g: dict[str, Any]) -> None:
    x = torch.randn(2, g["channels"], *g["sizes"])
    weight = torch.randn(g["filters"], g["channels"] // g["groups"], *g["kernel"])
    bias = torch.randn(g["filters"]) if g["bias"] else None
    padded = functional.pad(x, padding_of(g))
    wanted = CONV[g["rank"]](padded, weight, bias, g["strides"], 0, g["dilations"], g["groups"])
    attributes = {"bias": bias.numpy()} if bias is not None else {}
    if g["rule"] == "custom":
        attributes["pad"] = g["pad"]
    found = one_op(
        "conv",
        {"x": x.numpy()},
        weight=weight.numpy(),
        pad_type=g["rule"],
        strides=g["strides"],
        dilations=g["dilations"],
        groups=g["groups"],
        **attributes,
    )
    agree(found, [wanted])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(g=geometries(), shaped=st.booleans())
def test_any_transpose(one_op: Any, agree: Any, g: dict[str, Any], shaped: bool) -> None:
    """It is the gradient of the convolution with the same attributes, in its input.

    That is what "same" and ``output_shape`` mean in TensorFlow. Without ``output_shape`` the size
    is not to be known, but for "same", which takes a multiple of the stride.
    """
    rule = g["rule"]
    shaped = shaped or rule != "same"
    if not shaped:
        g["sizes"] = [2 * stride for stride in g["strides"]]
    weight = torch.randn(g["filters"], g["channels"] // g["groups"], *g["kernel"])
    x = torch.zeros(1, g["channels"], *g["sizes"], requires_grad=True)
    forward = CONV[g["rank"]](
        functional.pad(x, padding_of(g)), weight, None, g["strides"], 0, g["dilations"], g["groups"]
    )
    strewn, bias = torch.randn_like(forward), torch.randn(g["channels"])
    (wanted,) = torch.autograd.grad(forward, x, strewn)
    attributes = {"pad": g["pad"]} if rule == "custom" else {}
    if shaped:
        attributes["output_shape"] = list(x.shape)
    found = one_op(
        "conv_transpose",
        {"x": strewn.numpy()},
        weight=weight.numpy(),
        bias=bias.numpy(),
        pad_type=rule,
        strides=g["strides"],
        dilations=g["dilations"],
        groups=g["groups"],
        **attributes,
    )
    agree(found, [wanted + bias.reshape([-1] + [1] * g["rank"])])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(g=geometries(), custom=st.booleans())
def test_a_transpose_less_its_padding(
    one_op: Any, agree: Any, g: dict[str, Any], custom: bool
) -> None:
    rank, pad = g["rank"], [min(each, 1) for each in g["pad"]] if custom else []
    x = torch.randn(2, g["channels"], *g["sizes"])
    weight = torch.randn(g["channels"], g["filters"] // g["groups"], *g["kernel"])
    strewn = BACK[rank](x, weight, None, g["strides"], 0, 0, g["groups"], g["dilations"])
    cut = [-amount for axis in reversed(range(rank)) for amount in pad[2 * axis : 2 * axis + 2]]
    attributes = {"pad": pad, "pad_type": "custom"} if custom else {"pad_type": "valid"}
    found = one_op(
        "conv_transpose",
        {"x": x.numpy()},
        weight=weight.numpy(),
        strides=g["strides"],
        dilations=g["dilations"],
        groups=g["groups"],
        **attributes,
    )
    agree(found, [functional.pad(strewn, cut) if custom else strewn])


@pytest.mark.parametrize("opset", [ct.target.iOS15, ct.target.iOS16, ct.target.iOS18])
def test_defaults_of_every_opset(one_op: Any, agree: Any, opset: Any) -> None:
    x, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    agree(
        one_op("conv", {"x": x.numpy()}, opset, weight=weight.numpy()),
        [functional.conv2d(x, weight)],
    )


def test_the_weight_may_be_computed(run_mil: Any, agree: Any) -> None:
    x, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    places = {
        "x": Placeholder((1, 2, 5, 5), types.fp32),
        "w": Placeholder((3, 2, 3, 3), types.fp32),
    }
    with Function(places, opset_version=ct.target.iOS17) as main:
        doubled = Builder.add(x=main.inputs["w"], y=main.inputs["w"])
        main.set_outputs([Builder.conv(x=main.inputs["x"], weight=doubled, pad_type="same")])
    program = Program()
    program.add_function("main", main)
    found = run_mil(program, {"x": x.numpy(), "w": weight.numpy()})
    agree(list(found.values()), [functional.conv2d(x, 2 * weight, padding=1)])


def test_a_weight_of_bytes(one_op: Any, agree: Any) -> None:
    x, weight = torch.randn(1, 2, 5), torch.randint(0, 256, (3, 2, 2), dtype=torch.uint8)
    scale, shift = torch.tensor([0.5, 0.1, 2.0]), torch.tensor([-1.0, 0.0, 3.0])
    values = weight.float() * scale.reshape(3, 1, 1) + shift.reshape(3, 1, 1)
    attributes = {
        "weight": weight.numpy(),
        "quant_scale": scale.numpy(),
        "quant_bias": shift.numpy(),
    }
    tensors = {"x": x.numpy()}
    found = one_op("conv_quantized", tensors, quantization_type="linear", **attributes)
    agree(found, [functional.conv1d(x, values)])
    for other in ({"quantization_type": "lut"}, {"quantization_type": "linear", "nbits": 4}):
        with pytest.raises(MilError) as caught:
            one_op("conv_quantized", tensors, **attributes, **other)
        assert caught.value.code == "EDGE-MIL-030"
