"""Elementwise arithmetic, comparison and logic against PyTorch, through ct.convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from torch import Tensor, nn


class Arithmetic(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            x + y,
            x - y,
            x * y,
            x / y,
            torch.floor_divide(x, y),
            torch.remainder(x, y),
            torch.pow(x.abs(), y),
            torch.maximum(x, y),
            torch.minimum(x, y),
        )


class Comparison(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        more, less = x > y, x < 0
        return (
            x == y,
            more,
            x >= y,
            x < y,
            x <= y,
            x != y,
            torch.logical_and(more, less),
            torch.logical_or(more, less),
            torch.logical_xor(more, less),
            torch.logical_not(more),
        )


class Functions(nn.Module):
    """``x`` is any number, ``u`` between -1 and 1, ``p`` positive."""

    def forward(self, x: Tensor, u: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        return (
            x.abs(),
            u.acos(),
            u.asin(),
            x.atan(),
            u.atanh(),
            x.ceil(),
            x.clamp(-0.5, 1.0),
            x.cos(),
            x.cosh(),
            x.erf(),
            x.exp(),
            torch.exp2(x),
            x.floor(),
            p.log(),
            x.round(),
            p.rsqrt(),
            x.sign(),
            x.sin(),
            x.sinh(),
            p.sqrt(),
            x.square(),
            u.tan(),
            x.tanh(),
            x.clamp(min=0.25),
            p.log1p(),
            p.log2(),
            p.log10(),
            x.expm1(),
        )


class Whole(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            x + y,
            x - y,
            x * y,
            torch.floor_divide(x, y),
            torch.remainder(x, y),
            torch.maximum(x, y),
            torch.minimum(x, y),
            x.abs(),
            x == y,
            x < y,
            x.sign(),
        )


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3, 4), (3, 1)), ((4,), (2, 1, 4)), ((1, 2, 3), (1, 2, 3))]
)
def test_two_operands(
    converted: Any, agree: Any, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x = torch.randn(left)
    y = torch.randn(right).sign() * (torch.rand(right) + 0.5)
    wanted, found = converted(Arithmetic(), x, y)
    agree(found, wanted)
    assert converted.ops >= {
        "add",
        "sub",
        "mul",
        "real_div",
        "floor_div",
        "pow",
        "maximum",
        "minimum",
    }


def test_comparison_and_logic(converted: Any, agree: Any) -> None:
    x, y = torch.randint(-2, 3, (2, 3, 4)).float(), torch.randint(-2, 3, (3, 1)).float()
    wanted, found = converted(Comparison(), x, y)
    agree(found, wanted)
    assert converted.ops >= {
        "equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
    }


def test_one_operand(converted: Any, agree: Any) -> None:
    x, u, p = torch.randn(3, 5) * 2, torch.rand(3, 5) * 1.9 - 0.95, torch.rand(3, 5) + 0.01
    wanted, found = converted(Functions(), x, u, p)
    agree(found, wanted)
    assert converted.ops >= {
        "abs",
        "acos",
        "asin",
        "atan",
        "atanh",
        "ceil",
        "clip",
        "cos",
        "cosh",
        "erf",
        "exp",
        "exp2",
        "floor",
        "log",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
    }


def test_integers(converted: Any, agree: Any) -> None:
    x = torch.randint(-9, 10, (3, 4), dtype=torch.int32)
    y = torch.where(torch.rand(4) < 0.5, 1, -1).int() * torch.randint(1, 5, (4,)).int()
    wanted, found = converted(Whole(), x, y)
    agree(found, wanted, tol=0)


@pytest.mark.parametrize(
    ("name", "default", "oracle"),
    [("inverse", 1e-4, lambda x: 1 / x), ("log", 1e-45, torch.log), ("rsqrt", 1e-12, torch.rsqrt)],
)
def test_epsilon_is_added_first(
    one_op: Any, agree: Any, name: str, default: float, oracle: Callable[[Tensor], Tensor]
) -> None:
    x = torch.tensor([0.5, 1.0, 3.0, 1e-3])
    for given, epsilon in (({}, default), ({"epsilon": np.float32(0.25)}, 0.25)):
        agree(one_op(name, {"x": x.numpy()}, **given), [oracle(x + epsilon)])


@pytest.mark.parametrize("kind", ["float", "int"])
def test_a_remainder_has_the_divisors_sign(one_op: Any, agree: Any, kind: str) -> None:
    """The converter writes a remainder as other ops, so that ``mod`` stands alone here."""
    x, y = torch.randint(-9, 10, (4, 50)), torch.randint(1, 5, (50,)) * torch.tensor([1, -1] * 25)
    x, y = (x / 2, y / 2) if kind == "float" else (x.int(), y.int())
    found = one_op("mod", {"x": x.numpy(), "y": y.numpy()})
    agree(found, [torch.remainder(x, y)], tol=0)


def test_bounds_and_squares(one_op: Any, agree: Any) -> None:
    x, whole = torch.randn(3, 4), torch.arange(-4, 5, dtype=torch.int32)
    agree(one_op("threshold", {"x": x.numpy()}, alpha=np.float32(0.3)), [x.clamp(min=0.3)])
    agree(one_op("threshold", {"x": whole.numpy()}, alpha=np.int32(2)), [whole.clamp(min=2)], tol=0)
    agree(one_op("square", {"x": x.numpy()}), [x.square()])
    agree(one_op("square", {"x": whole.numpy()}), [whole.square()], tol=0)


def test_an_inverse_is_what_apples_runtime_makes_of_it(one_op: Any) -> None:
    """Its converter (9.0) leaves it an epsilon of 1e-4, which PyTorch's reciprocal does not add.

    The numbers are what pull request 2773 of coremltools measured on a Mac.
    """
    x = np.array([1.0e-04, 1.0e-03, 1.0e-02, 2.5e-01, 1.0e00], np.float32)
    measured = [5.0000005e03, 9.0909094e02, 9.9009903e01, 3.9984009e00, 9.9990004e-01]
    found = one_op("inverse", {"x": x})[0]
    np.testing.assert_allclose(found, measured, rtol=2e-7)


def test_zero_stays_finite(one_op: Any) -> None:
    """The default epsilons are there for it: the smallest float32, and 1e-4."""
    zero = np.zeros(1, np.float32)
    assert one_op("log", {"x": zero})[0][0] == pytest.approx(np.log(1.4e-45), rel=1e-3)
    assert one_op("inverse", {"x": zero})[0][0] == pytest.approx(1e4, rel=1e-6)


def test_what_numbers_do_at_the_edge(one_op: Any) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    one = np.ones(4, np.float32)
    np.testing.assert_array_equal(one_op("maximum", {"x": x, "y": one})[0], [np.nan, np.inf, 1, 1])
    np.testing.assert_array_equal(one_op("equal", {"x": x, "y": x})[0], [False, True, True, True])
    np.testing.assert_array_equal(one_op("not_equal", {"x": x, "y": x})[0][0], True)
    np.testing.assert_array_equal(
        one_op("clip", {"x": x}, alpha=np.float32(-2), beta=np.float32(2))[0], [np.nan, 2, -2, 0]
    )


def test_halves_round_to_even(one_op: Any) -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.51], np.float32)
    np.testing.assert_array_equal(one_op("round", {"x": x})[0], [-2, -2, -0.0, 0, 2, 2, 3])


def test_powers_of_integers_are_exact(one_op: Any) -> None:
    x = np.arange(31, dtype=np.int32)
    np.testing.assert_array_equal(one_op("exp2", {"x": x})[0], 2 ** x.astype(np.int64))


def test_division_by_zero_is_an_error_that_names_the_op(one_op: Any) -> None:
    from edgeserve.errors import MilError

    two = {"x": np.ones(2, np.int32), "y": np.zeros(2, np.int32)}
    with pytest.raises(MilError, match="floor_div") as caught:
        one_op("floor_div", two)
    assert caught.value.code == "EDGE-MIL-006"


def test_float16_is_rounded_once(one_op: Any) -> None:
    """1 + 2^-11 and 2048 + 1 do not exist in float16: halves go to the even neighbour."""
    x = np.array([1.0, 2048.0, 60000.0], np.float16)
    y = np.array([2.0**-11, 1.0, 60000.0], np.float16)
    rounded = one_op("add", {"x": x, "y": y}, precision="fp16")[0]
    exact = one_op("add", {"x": x, "y": y})[0]
    np.testing.assert_array_equal(rounded, [1.0, 2048.0, np.inf])
    np.testing.assert_array_equal(exact, np.array([1 + 2.0**-11, 2049, 120000], np.float32))


def test_older_programs_have_the_same_kernels(one_op: Any, agree: Any) -> None:
    x = torch.rand(5)
    for opset in (ct.target.iOS15, ct.target.iOS16, ct.target.iOS18):
        agree(one_op("rsqrt", {"x": x.numpy()}, opset=opset), [x.rsqrt()])
