"""Rules for operators that formats lack: what PyTorch itself gives, at odd values too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from edgeserve.backends.coreml.lowerings.corrections import CORRECTIONS
from edgeserve.backends.tflite.corrections import CORRECTIONS as TFLITE
from edgeserve.backends.tflite.sorting import SORTING
from edgeserve.backends.torch.rules import RULES

ATEN = torch.ops.aten
ALL: dict[Any, Callable[..., Any]] = {**TFLITE, **CORRECTIONS, **RULES}

torch.manual_seed(0)
X, Y = torch.randn(3, 4, 5) * 2, torch.randn(3, 4, 5) * 2
WHOLE = torch.randint(-9, 9, (3, 4, 5))
DIVISOR = torch.randint(1, 5, (3, 4, 5))
ODD = torch.tensor([0.0, -0.0, 1.5, -1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan")])
PLACES = torch.tensor([[[2, 0, 1, 3, 2]] * 2] * 3)
STEPS = torch.tensor([-1.0, 0.0, 0.5])

CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (ATEN.bilinear.default, (X, Y, torch.randn(6, 5, 5), torch.randn(6)), {}),
    (ATEN.full_like.default, (X, 0), {}),
    (ATEN.full_like.default, (WHOLE, 2), {"dtype": torch.float32}),
    (ATEN.lerp.Scalar, (X, Y, 0.3), {}), (ATEN.lerp.Scalar, (X, Y, 0.8), {}),
    (ATEN.exp2.default, (X,), {}), (ATEN.asinh.default, (X * 100,), {}),
    (ATEN.asinh.default, (X * 1e-3,), {}), (ATEN.acosh.default, (X.abs() + 1,), {}),
    (ATEN.erfc.default, (X,), {}), (ATEN.erfinv.default, (X.tanh(),), {}),
    (ATEN.erfinv.default, (torch.tensor([0.9999, -0.99999, 0.0]),), {}),
    (ATEN.trunc.default, (ODD,), {}), (ATEN.trunc.default, (WHOLE,), {}),
    (ATEN.frac.default, (X,), {}), (ATEN.signbit.default, (ODD[:-1],), {}),
    (ATEN.signbit.default, (WHOLE,), {}), (ATEN.round.decimals, (X,), {"decimals": 2}),
    (ATEN.round.decimals, (X * 100,), {"decimals": -1}),
    (ATEN.fmax.default, (ODD, ODD.flip(0)), {}),
    (ATEN.fmin.default, (ODD, ODD.flip(0)), {}), (ATEN.hypot.default, (X, Y), {}),
    (ATEN.fmod.Tensor, (X, Y), {}), (ATEN.fmod.Scalar, (X, 0.7), {}),
    (ATEN.fmod.Tensor, (WHOLE, DIVISOR), {}), (ATEN.pow.Tensor_Scalar, (WHOLE, 3), {}),
    (ATEN.bitwise_not.default, (WHOLE,), {}), (ATEN.bitwise_xor.Tensor, (WHOLE, DIVISOR), {}),
    (ATEN.logical_xor.default, (X > 0, Y > 0), {}), (ATEN.logaddexp2.default, (X, Y), {}),
    (ATEN.special_i0.default, (X * 4,), {}), (ATEN.lgamma.default, (X * 5,), {}),
    (ATEN.lgamma.default, (X.abs() * 1e-3 + 1e-4,), {}), (ATEN.i0.default, (X,), {}),
    (ATEN.digamma.default, (X.abs() + 0.1,), {}), (ATEN.topk.default, (X, 3), {}),
    (ATEN.digamma.default, (-X.abs().frac() * 0.8 - 1.1,), {}),
    (ATEN.rrelu.default, (X, 0.1, 0.3), {}), (ATEN.copysign.Tensor, (X, Y), {}),
    (ATEN.copysign.Scalar, (X, -0.0), {}), (ATEN.norm.Scalar, (X, 3), {}),
    (ATEN.cdist.default, (X, Y), {}), (ATEN.cdist.default, (X, Y, 1.0), {}),
    (ATEN.var_mean.correction, (X, [1]), {"correction": 0, "keepdim": True}),
    (ATEN.var_mean.correction, (X,), {}), (ATEN.one_hot.default, (DIVISOR, 6), {}),
    (ATEN.median.dim, (X, 1), {}), (ATEN.median.dim, (X, -1, True), {}),
    (ATEN.kthvalue.default, (X, 2, 1), {}), (ATEN.cummax.default, (X.round(), 1), {}),
    (ATEN.cummin.default, (X.round(), -1), {}), (ATEN.cumprod.default, (X, 0), {}),
    (ATEN.logcumsumexp.default, (X * 20, 2), {}), (ATEN.topk.default, (X, 2, 1), {}),
    (ATEN.topk.default, (X, 2, -1, False), {}), (ATEN.sort.default, (X, 1, True), {}),
    (ATEN.sort.stable, (X.round(),), {"stable": True, "dim": 0, "descending": False}),
    (ATEN.argsort.default, (X, 0, True), {}),
    (ATEN.constant_pad_nd.default, (X, [-1, 2, 1, -1]), {}),
    (ATEN.constant_pad_nd.default, (X, [-1, -2], 4.0), {}), (ATEN.diagonal.default, (X,), {}),
    *[(ATEN.diagonal.default, (X, offset, 2, 1), {}) for offset in (-4, -1, 0, 1, 3)],
    (ATEN.index_add.default, (X, 1, torch.tensor([2, 0, 2]), Y[:, :3]), {"alpha": 2}),
    (ATEN.scatter_add.default, (X, 1, PLACES, Y), {}),
    (ATEN.scatter_add.default, (X, 1, PLACES[:2, :, :3], Y), {}),
    (ATEN.scatter_reduce.two, (X, 1, PLACES, Y, "amax"), {}),
    (ATEN.scatter_reduce.two, (X, 1, PLACES[..., :4], Y, "amin"), {}),
    (ATEN.index_fill.int_Scalar, (X, -1, torch.tensor([0, 3]), 7.0), {}),
    (ATEN.index_copy.default, (X, 1, torch.tensor([3, 0]), Y[:, :2]), {}),
    (ATEN.searchsorted.Tensor, (STEPS, torch.cat([STEPS, ODD])), {}),
    (ATEN.searchsorted.Tensor, (STEPS, X), {"right": True}),
    (ATEN.searchsorted.Tensor, (X.sort(-1).values, Y), {}),
    (ATEN.bucketize.Tensor, (X, STEPS), {"right": True, "out_int32": True}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "arguments", "named"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_a_rule_gives_what_the_operator_gives(
    operator: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    wanted, got = operator(*arguments, **named), ALL[operator](*arguments, **named)
    if got is NotImplemented:
        pytest.fail("the rule leaves this case to the format")
    for right, made in zip(tree_leaves(wanted), tree_leaves(got), strict=True):
        torch.testing.assert_close(made, right, rtol=2e-5, atol=1e-5, equal_nan=True)


def test_every_rule_has_a_case() -> None:
    same = {ATEN._cdist_forward.default, ATEN.diagonal_copy.default, ATEN.index_fill.int_Tensor}
    assert set(ALL) - same == {operator for operator, _, _ in CASES}


def test_rules_leave_what_needs_none() -> None:
    assert SORTING[ATEN.topk.default](X, 2, 2) is NotImplemented
    assert CORRECTIONS[ATEN.constant_pad_nd.default](X, [1, 0]) is NotImplemented
    assert RULES[ATEN.one_hot.default](DIVISOR) is NotImplemented
