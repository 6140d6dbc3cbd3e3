"""Words among arguments and names of nodes that are the same; inputs that are written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

X = (torch.arange(-12.0, 12.0).reshape(2, 12) * 0.37 + 0.01,)


class _Floors(nn.Module):
    """A node called ``floor`` before a division that rounds to "floor"."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.floor(x * 4) // 3


class _Input(nn.Module):
    """An input of that name, which is an answer as well."""

    def forward(self, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.div(floor, 0.7, rounding_mode="floor"), floor


class _Trunc(nn.Module):
    """A node called ``trunc``, given out after it was a word."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        trunc = torch.trunc(x)
        return torch.div(x, 0.7, rounding_mode="trunc"), trunc


class _Tanh(nn.Module):
    """A node called ``tanh`` before a gelu of that kind."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(torch.tanh(x) * 3, approximate="tanh")


@pytest.mark.parametrize("net", [_Floors(), _Input(), _Trunc(), _Tanh()])
@pytest.mark.parametrize("open", [False, True])
def test_a_node_that_is_called_like_a_word_answers_as_pytorch(
    packages: Any, net: nn.Module, open: bool
) -> None:
    shapes = ({0: ("batch", 1, 4), 1: ("length", 2, 16)},) if open else None
    package = packages.make(packages.export(net, X, shapes))
    assert package.error() <= 1e-6


class _InPlace(nn.Module):
    """Writes to its input, and to a part of it, and gives it out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        x[:, 0] = 1.5
        x[x < -3] = 0.25
        return self.linear(x), x


@pytest.mark.parametrize("open", [False, True])
def test_an_input_that_is_written_to_answers_and_stays(packages: Any, open: bool) -> None:
    net = _InPlace().eval()
    shapes = ({0: ("batch", 1, 4)},) if open else None
    package = packages.make(packages.export(net, (X[0].clone(),), shapes))
    assert {"functionalize_inputs", "lower_masked_write"} <= set(
        package.artifact.provenance.rewrites
    )
    with torch.no_grad():
        right = [each.numpy() for each in net(X[0].clone())]
    given = X[0].numpy().copy()
    name = package.net.exported.signature.inputs[0].name
    got = package.answer({name: given})
    for mine, wanted in zip(got.values(), right, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(given, X[0].numpy())
