"""Products of matrices and attention against PyTorch."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bare = nn.Linear(4, 5), nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return (
            self.linear(x),
            self.bare(x),
            x @ y,
            torch.bmm(x, y[0].expand(2, 4, 6)),
            y.mT @ x.mT,
            torch.einsum("bij,cbjk->cbik", x, y),
            torch.matmul(x, v),
            torch.matmul(v, y),
            torch.einsum("i,bji->bj", v, x),
            torch.outer(v, v),
        )


def test_as_the_converter_writes_them(converted: Any, agree: Any) -> None:
    wanted, found = converted(
        Products(),
        torch.randn(2, 3, 4),
        torch.randn(3, 1, 4, 6).expand(3, 2, 4, 6).clone(),
        torch.randn(4),
    )
    agree(found, wanted)
    assert converted.ops >= {"linear", "matmul"}


@pytest.mark.parametrize("turn_x", [False, True])
@pytest.mark.parametrize("turn_y", [False, True])
@pytest.mark.parametrize(("left", "right"), [((), ()), ((2, 1), (3,)), ((1,), (2, 3))])
def test_matmul(
    one_op: Any,
    agree: Any,
    turn_x: bool,
    turn_y: bool,
    left: tuple[int, ...],
    right: tuple[int, ...],
) -> None:
    x, y = torch.randn(*left, 4, 5), torch.randn(*right, 5, 6)
    tensors = {"x": (x.mT if turn_x else x).numpy(), "y": (y.mT if turn_y else y).numpy()}
    found = one_op("matmul", tensors, transpose_x=turn_x, transpose_y=turn_y)
    agree(found, [x @ y])


def test_integers_are_exact(one_op: Any) -> None:
    x = np.array([[40000, 1], [3, -7]], np.int32)
    assert one_op("matmul", {"x": x, "y": x})[0].tolist() == (x.astype(np.int64) @ x).tolist()
    found = one_op("linear", {"x": x}, weight=x, bias=np.array([5, -5], np.int32))[0]
    assert found.tolist() == (x.astype(np.int64) @ x.T + [5, -5]).tolist()


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)),
        ("nchw,nwhu->nchu", (1, 3, 4, 5), (2, 5, 1, 6)),
        ("chw,whr->chr", (3, 4, 5), (5, 4, 6)),
        ("chw,whr->chr", (3, 1, 5), (5, 4, 6)),
    ],
)
def test_einsum(
    one_op: Any, agree: Any, equation: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """It multiplies the matrices of axes -3 and -1; the others are batch."""
    x, y = torch.randn(left), torch.randn(right)
    found = one_op("einsum", {"values.0": x.numpy(), "values.1": y.numpy()}, equation=equation)
    agree(found, [(x.transpose(-3, -2) @ y.transpose(-3, -2)).transpose(-3, -2)])


QKV = (2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)


def attend(one_op: Any, parts: list[Tensor], mask: Tensor | None) -> list[np.ndarray]:
    names = ["query", "key", "value", "attn_mask"]
    given = [*parts] if mask is None else [*parts, mask]
    tensors = {name: x.numpy() for name, x in zip(names, given, strict=False)}
    return one_op("scaled_dot_product_attention", tensors, opset=ct.target.iOS18)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("kind", ["none", "float", "bool", "broadcast"])
def test_attention(one_op: Any, agree: Any, rank: int, kind: str) -> None:
    parts = [torch.randn(shape[4 - rank :]) for shape in QKV]
    masks = {
        "none": None,
        "float": torch.randn(4, 5),
        "bool": torch.ones(4, 5).tril(1).bool(),
        "broadcast": torch.tensor([True, False, True, True, False]).expand(1, 5),
    }
    mask = masks[kind]
    agree(
        attend(one_op, parts, mask),
        [functional.scaled_dot_product_attention(*parts, attn_mask=mask)],
    )


def test_who_sees_nobody_is_nan(one_op: Any) -> None:
    """As the documented formula has it; PyTorch's fused kernels say 0."""
    parts = [torch.randn(1, 2, 3)] * 3
    (found,) = attend(one_op, parts, torch.tensor([[True, True], [False, False]]))
    assert np.isfinite(found[0, 0]).all()
    assert np.isnan(found[0, 1]).all()


def test_a_constant_of_another_type(one_op: Any) -> None:
    """Allowed since iOS 17; the result has the type of what is no constant."""
    x, y = np.array([[3, -7], [5, 1]], np.int32), np.array([[0.5, 2], [1.5, -1]], np.float32)
    (found,) = one_op("matmul", {"x": x}, y=y)
    assert found.dtype == np.int32
    assert found.tolist() == np.trunc(x @ y).tolist()
    assert one_op("matmul", {"y": y}, x=x)[0].tolist() == (x @ y).tolist()
