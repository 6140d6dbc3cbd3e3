"""Normalizations against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch_one, self.batch_two = nn.BatchNorm1d(4), nn.BatchNorm2d(4, eps=1e-3)
        self.batch_three = nn.BatchNorm3d(2)
        self.layer, self.plane = nn.LayerNorm(6), nn.LayerNorm((5, 6), eps=1e-2)
        self.instance = nn.InstanceNorm2d(4, affine=True)
        self.group = nn.GroupNorm(2, 4)
        with torch.no_grad():
            for batch in (self.batch_one, self.batch_two, self.batch_three):
                batch.running_mean.uniform_(-1, 1)
                batch.running_var.uniform_(0.5, 2)
            for weight in self.parameters():
                weight.uniform_(-1, 1)

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (
            self.batch_one(x),
            self.batch_two(y),
            self.batch_three(z),
            self.layer(y),
            self.plane(y),
            self.instance(y),
            self.group(y),
            functional.instance_norm(x),
            functional.normalize(y, dim=1),
            functional.local_response_norm(y, 3, 0.1, 0.6, 2.0),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    inputs = torch.randn(2, 4, 7), torch.randn(2, 4, 5, 6), torch.randn(1, 2, 3, 4, 5)
    wanted, found = converted(Norms(), *inputs)
    agree(found, wanted)
    assert converted.ops >= {"batch_norm", "layer_norm"}


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 4, 5)])
@pytest.mark.parametrize("scaled", [False, True])
def test_instance_norm(one_op: Any, agree: Any, shape: tuple[int, ...], scaled: bool) -> None:
    x, gamma, beta = torch.randn(shape) * 3 + 1, torch.randn(3), torch.randn(3)
    attributes = {"gamma": gamma.numpy(), "beta": beta.numpy()} if scaled else {}
    found = one_op("instance_norm", {"x": x.numpy()}, epsilon=np.float32(1e-2), **attributes)
    weights = {"weight": gamma, "bias": beta} if scaled else {}
    agree(found, [functional.instance_norm(x, eps=1e-2, **weights)])


def test_one_element_has_no_variance(one_op: Any, agree: Any) -> None:
    x, beta = torch.randn(2, 3, 1), torch.tensor([1.0, -2.0, 0.5])
    found = one_op("instance_norm", {"x": x.numpy()}, gamma=beta.numpy(), beta=beta.numpy())
    agree(found, [beta.reshape(1, 3, 1).expand(2, 3, 1)])


@pytest.mark.parametrize("axes", [[1], [0, 2], [1, -1], [2, 3], [-2], [0, 1, 2, 3]])
def test_layer_norm_over_any_axes(one_op: Any, agree: Any, axes: list[int]) -> None:
    x = torch.randn(2, 3, 4, 5) * 2 - 1
    over = sorted(axis % 4 for axis in axes)
    sizes = [x.shape[axis] for axis in over]
    gamma, beta = torch.randn(sizes), torch.randn(sizes)
    found = one_op(
        "layer_norm",
        {"x": x.numpy()},
        axes=axes,
        gamma=gamma.numpy(),
        beta=beta.numpy(),
        epsilon=np.float32(1e-3),
    )
    behind = x.movedim(over, list(range(-len(over), 0)))
    normal = functional.layer_norm(behind, sizes, gamma, beta, 1e-3)
    agree(found, [normal.movedim(list(range(-len(over), 0)), over)])


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (2, 2, 1, 4, 3)])
def test_l2_norm_takes_the_last_three_axes(one_op: Any, agree: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    length = x.flatten(-3).norm(dim=-1).reshape(*shape[:-3], 1, 1, 1)
    found = one_op("l2_norm", {"x": x.numpy()}, epsilon=np.float32(1e-12))
    agree(found, [x / length])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_neighbouring_channels(one_op: Any, agree: Any, size: int) -> None:
    x = torch.randn(2, 6, 3, 2)
    attributes = {"alpha": np.float32(0.2), "beta": np.float32(0.6), "k": np.float32(1.5)}
    found = one_op("local_response_norm", {"x": x.numpy()}, size=size, **attributes)
    agree(found, [functional.local_response_norm(x, size, 0.2, 0.6, 1.5)])


def test_an_even_neighbourhood_is_one_less(one_op: Any) -> None:
    """Numbers that coremltools expects of the runtime; PyTorch sums one channel more."""
    x = np.array([[[1.0, -7.0], [5.0, -6.0], [-3.0, -5.0]]], np.float32)
    wanted = [[0.99996257, -6.98716545], [4.99531746, -5.99191284], [-2.99898791, -4.99531746]]
    (found,) = one_op("local_response_norm", {"x": x}, size=2)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)


def test_what_coremltools_expects_of_the_runtime(one_op: Any) -> None:
    """Numbers of its own tests for ``batch_norm`` without and with a scale."""
    x = np.array([[[[-16, 13], [11, -16]], [[13, -15], [13, 9]], [[-9, -4], [-6, 3]]]], np.float32)
    stored = {"mean": np.float32([9, 6, 3]), "variance": np.float32([6, 1, 7])}
    (found,) = one_op("batch_norm", {"x": x}, **stored)
    first = [-10.206199, 1.6329918, 0.8164959, -10.206199]
    np.testing.assert_allclose(found[0, 0].reshape(-1), first, rtol=1e-6)
    scale = {"gamma": np.float32([1, 1, 1]), "beta": np.float32([1, 3, 0])}
    (found,) = one_op("batch_norm", {"x": x}, epsilon=np.float32(1e-4), **stored, **scale)
    second = [9.99965, -17.998951, 9.99965, 5.9998503]
    np.testing.assert_allclose(found[0, 1].reshape(-1), second, rtol=1e-6)
