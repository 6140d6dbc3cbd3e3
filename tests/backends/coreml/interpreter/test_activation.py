"""Activations against PyTorch, through ct.convert where the converter writes the op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional


def tanh_gelu(x: Tensor) -> Tensor:
    """Written out, as coremltools 9.0 drops the argument of PyTorch's own."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Activations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prelu = nn.PReLU(3)
        with torch.no_grad():
            self.prelu.weight.copy_(torch.tensor([0.1, -0.5, 2.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.relu(x),
            functional.hardtanh(3 * x, 0.0, 6.0),
            functional.elu(x, 0.7),
            functional.leaky_relu(x, 0.2),
            self.prelu(x),
            functional.silu(x),
            functional.gelu(x),
            tanh_gelu(x),
            torch.sigmoid(x),
            functional.hardsigmoid(2 * x),
            functional.hardswish(2 * x),
            functional.softplus(x),
            functional.softsign(x),
            functional.softmax(x, 1),
            functional.log_softmax(x, -1),
            functional.mish(x),
            functional.hardtanh(x, -0.3, 0.4),
            functional.threshold(x, 0.0, 0.0),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    x = torch.randn(2, 3, 4, 5) * 2
    wanted, found = converted(Activations(), x)
    agree(found, wanted)
    agree([found[7]], [functional.gelu(x, approximate="tanh")])
    assert converted.ops >= {
        "clip",
        "elu",
        "gelu",
        "leaky_relu",
        "relu",
        "sigmoid",
        "softmax",
        "tanh",
    }


X = np.linspace(-4, 4, 48, dtype=np.float32).reshape(2, 3, 2, 4)
T = torch.from_numpy(X)
HALF, TWO = np.float32(0.5), np.float32(2.0)


@pytest.mark.parametrize(
    ("name", "attributes", "wanted"),
    [
        ("clamped_relu", {"alpha": HALF, "beta": TWO}, functional.leaky_relu(T, 0.5).clamp(max=2)),
        (
            "clamped_relu",
            {"alpha": -TWO, "beta": HALF},
            functional.leaky_relu(T, -2).clamp(max=0.5),
        ),
        ("linear_activation", {"alpha": HALF, "beta": TWO}, 0.5 * T + 2),
        ("scaled_tanh", {"alpha": HALF, "beta": TWO}, 0.5 * torch.tanh(2 * T)),
        ("sigmoid_hard", {"alpha": HALF, "beta": TWO}, (0.5 * T + 2).clamp(0, 1)),
        ("relu6", {}, functional.relu6(T)),
        ("silu", {}, functional.silu(T)),
        ("softplus", {}, functional.softplus(T)),
        ("softsign", {}, functional.softsign(T)),
        ("thresholded_relu", {"alpha": TWO}, torch.where(T >= 2, T, 0.0)),
        ("thresholded_relu", {"alpha": -TWO}, torch.where(T >= -2, T, 0.0)),
        ("gelu", {"mode": "SIGMOID_APPROXIMATION"}, T * torch.sigmoid(1.702 * T)),
    ],
)
def test_by_formula(
    one_op: Any, agree: Any, name: str, attributes: dict[str, Any], wanted: Tensor
) -> None:
    agree(one_op(name, {"x": X}, **attributes), [wanted])


def test_each_channel_has_its_softplus(one_op: Any, agree: Any) -> None:
    alpha, beta = torch.tensor([1.0, 0.5, 2.0]), torch.tensor([1.0, 3.0, 0.1])
    each = [x.unsqueeze(1) for x in T.unbind(1)]
    wanted = [
        a * b * functional.softplus(x, float(b)) for x, a, b in zip(each, alpha, beta, strict=True)
    ]
    found = one_op("softplus_parametric", {"x": X}, alpha=alpha.numpy(), beta=beta.numpy())
    agree(found, [torch.cat(wanted, 1)])


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 3, 2, 2, 2)])
def test_prelu_takes_one_to_three_spatial_axes(
    one_op: Any, agree: Any, shape: tuple[int, ...]
) -> None:
    x, alpha = torch.randn(shape), torch.full((3,), 0.3)
    found = one_op("prelu", {"x": x.numpy()}, alpha=alpha.numpy())
    agree(found, [functional.prelu(x, alpha)])


def test_nothing_overflows(one_op: Any) -> None:
    x = np.array([-200.0, 200.0], np.float32)
    np.testing.assert_allclose(one_op("softplus", {"x": x})[0], [0, 200], atol=1e-30)
    np.testing.assert_allclose(one_op("sigmoid", {"x": x})[0], [0, 1], atol=1e-30)
    np.testing.assert_allclose(one_op("softmax", {"x": x}, axis=0)[0], [0, 1], atol=1e-30)


def test_float16_rounds_the_result(one_op: Any) -> None:
    x = T.half()
    found = one_op("gelu", {"x": x.numpy()}, precision="fp16", mode="EXACT")[0]
    np.testing.assert_array_equal(found, functional.gelu(x.float()).half().float().numpy())
