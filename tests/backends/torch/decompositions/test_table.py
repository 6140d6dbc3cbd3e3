"""Rules for operators that formats lack: what PyTorch itself gives, at odd values too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from edgeserve.backends.coreml.passes.corrections import CORRECTIONS
from edgeserve.backends.tflite.lowerings import CORRECTIONS as TFLITE
from edgeserve.backends.tflite.lowerings import SORT_RULES
from edgeserve.backends.torch.decompositions.scatter import SCATTER_RULES
from edgeserve.backends.torch.decompositions.table import RULES

ATEN = torch.ops.aten
ALL: dict[Any, Callable[..., Any]] = {**TFLITE, **CORRECTIONS, **RULES, **SCATTER_RULES}

torch.manual_seed(0)
X, Y = torch.randn(3, 4, 5) * 2, torch.randn(3, 4, 5) * 2
WHOLE = torch.randint(-9, 9, (3, 4, 5))
DIVISOR = torch.randint(1, 5, (3, 4, 5))
ODD = torch.tensor([0.0, -0.0, 1.5, -1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan")])
PLACES = torch.tensor([[[2, 0, 1, 3, 2]] * 2] * 3)
BITS = torch.tensor([0, 1, -1, 77, -78, 65535, 65536, -65536, 2**31 - 1, -(2**31), 123456789])
SQUARE = torch.randn(3, 4, 4) + 3 * torch.eye(4)
STEPS = torch.tensor([-1.0, 0.0, 0.5])

CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (ATEN.bilinear.default, (X, Y, torch.randn(6, 5, 5), torch.randn(6)), {}),
    (ATEN.full_like.default, (X, 0), {}),
    (ATEN.full_like.default, (WHOLE, 2), {"dtype": torch.float32}),
    (ATEN.lerp.Scalar, (X, Y, 0.3), {}),
    (ATEN.lerp.Scalar, (X, Y, 0.8), {}),
    (ATEN.kron.default, (X[0], Y[0, :2]), {}),
    (ATEN.kron.default, (X, Y[0, 0]), {}),
    (ATEN.kron.default, (X[0, 0, 0], Y[0, 0, 0]), {}),
    (ATEN.exp2.default, (X,), {}),
    (ATEN.asinh.default, (X * 100,), {}),
    (ATEN.asinh.default, (X * 1e-3,), {}),
    (ATEN.acosh.default, (X.abs() + 1,), {}),
    (ATEN.erfc.default, (X,), {}),
    (ATEN.erfinv.default, (X.tanh(),), {}),
    (ATEN.erfinv.default, (torch.tensor([0.9999, -0.99999, 0.0]),), {}),
    (ATEN.trunc.default, (ODD,), {}),
    (ATEN.trunc.default, (WHOLE,), {}),
    (ATEN.frac.default, (X,), {}),
    (ATEN.signbit.default, (ODD[:-1],), {}),
    (ATEN.signbit.default, (WHOLE,), {}),
    (ATEN.round.decimals, (X,), {"decimals": 2}),
    (ATEN.round.decimals, (X * 100,), {"decimals": -1}),
    (ATEN.fmax.default, (ODD, ODD.flip(0)), {}),
    (ATEN.fmin.default, (ODD, ODD.flip(0)), {}),
    (ATEN.hypot.default, (X, Y), {}),
    (ATEN.fmod.Tensor, (X, Y), {}),
    (ATEN.fmod.Scalar, (X, 0.7), {}),
    (ATEN.fmod.Tensor, (WHOLE, DIVISOR), {}),
    (ATEN.abs.default, (WHOLE,), {}),
    (ATEN.sign.default, (WHOLE,), {}),
    (ATEN.clamp.default, (BITS, -5, 2**24 + 1), {}),
    (ATEN.clamp.Tensor, (WHOLE, DIVISOR), {}),
    (ATEN.bitwise_not.default, (WHOLE,), {}),
    (ATEN.bitwise_xor.Tensor, (WHOLE, DIVISOR), {}),
    (ATEN.logical_xor.default, (X > 0, Y > 0), {}),
    (ATEN.logaddexp2.default, (X, Y), {}),
    (ATEN.special_i0.default, (X * 4,), {}),
    (ATEN.lgamma.default, (X * 5,), {}),
    (ATEN.lgamma.default, (X.abs() * 1e-3 + 1e-4,), {}),
    (ATEN.i0.default, (X,), {}),
    (ATEN.digamma.default, (X.abs() + 0.1,), {}),
    (ATEN.topk.default, (X, 3), {}),
    (ATEN.digamma.default, (-X.abs().frac() * 0.8 - 1.1,), {}),
    (ATEN.rrelu.default, (X, 0.1, 0.3), {}),
    (ATEN.copysign.Tensor, (X, Y), {}),
    (ATEN.copysign.Scalar, (X, -0.0), {}),
    (ATEN.norm.Scalar, (X, 3), {}),
    (ATEN.cdist.default, (X, Y), {}),
    (ATEN.cdist.default, (X, Y, 1.0), {}),
    (ATEN.var_mean.correction, (X, [1]), {"correction": 0, "keepdim": True}),
    (ATEN.var_mean.correction, (X,), {}),
    (ATEN.one_hot.default, (DIVISOR, 6), {}),
    (ATEN.median.default, (X,), {}),
    (ATEN.median.dim, (X, 1), {}),
    (ATEN.median.dim, (X, -1, True), {}),
    (ATEN.kthvalue.default, (X, 2, 1), {}),
    (ATEN.cummax.default, (X.round(), 1), {}),
    (ATEN.cummin.default, (X.round(), -1), {}),
    (ATEN.cumprod.default, (X, 0), {}),
    (ATEN.logcumsumexp.default, (X * 20, 2), {}),
    (ATEN.topk.default, (X, 2, 1), {}),
    (ATEN.topk.default, (X, 2, -1, False), {}),
    (ATEN.sort.default, (X, 1, True), {}),
    (ATEN.sort.stable, (X.round(),), {"stable": True, "dim": 0, "descending": False}),
    (ATEN.argsort.default, (X, 0, True), {}),
    *[(getattr(ATEN, name).default, (X[:, :1], -2), {}) for name in ("argmax", "argmin")],
    *[(getattr(ATEN, name).dim, (X[:, :1], 1), {}) for name in ("max", "min")],
    (ATEN.max.dim, (X[..., :1], -1, True), {}),
    (ATEN.sort.default, (X[:1], -3), {}),
    (ATEN.topk.default, (X[..., :1], 1), {}),
    (ATEN.split.Tensor, (X[:, :1], 1, -2), {}),
    (ATEN.split_with_sizes.default, (X, [4], 1), {}),
    (ATEN.flip.default, (X, [0, -1]), {}),
    (ATEN.slice_scatter.default, (X, Y[:, :2], -2, 1, 3), {}),
    (ATEN.select_scatter.default, (X, Y[:, 0], -2, -1), {}),
    (ATEN.cumsum.default, (X, -2), {}),
    (ATEN.group_norm.default, (X.reshape(1, 4, 3, 1, 5), 2), {}),
    (ATEN.pixel_shuffle.default, (X.transpose(0, 1), 2), {}),
    (ATEN.pixel_unshuffle.default, (X[None, None, ..., :4], 2), {}),
    (ATEN.constant_pad_nd.default, (X, [-1, 2, 1, -1]), {}),
    (ATEN.constant_pad_nd.default, (X, [-1, -2], 4.0), {}),
    (ATEN.diagonal.default, (X,), {}),
    *[(ATEN.diagonal.default, (X, offset, 2, 1), {}) for offset in (-4, -1, 0, 1, 3)],
    (ATEN.index_add.default, (X, 1, torch.tensor([2, 0, 2]), Y[:, :3]), {"alpha": 2}),
    (ATEN.scatter_add.default, (X, 1, PLACES, Y), {}),
    (ATEN.scatter_add.default, (X, 1, PLACES[:2, :, :3], Y), {}),
    (ATEN.scatter_reduce.two, (X, 1, PLACES, Y, "amax"), {}),
    (ATEN.scatter_reduce.two, (X, 1, PLACES[..., :4], Y, "amin"), {}),
    (ATEN.scatter_reduce.two, (WHOLE, 1, PLACES, DIVISOR, "mean"), {}),
    (ATEN.scatter_reduce.two, (X, 1, PLACES, Y, "prod"), {"include_self": False}),
    (ATEN.scatter.reduce, (X, 1, PLACES, Y), {"reduce": "add"}),
    (ATEN.scatter.src, (X, 1, PLACES[:, :1], Y), {}),
    (ATEN.scatter.value, (X > 0, 1, PLACES, True), {}),
    (ATEN.scatter.value_reduce, (X, 1, PLACES, 2.0), {"reduce": "multiply"}),
    (ATEN.index_reduce.default, (X, 1, torch.tensor([2, 0, 2]), Y[:, :3], "prod"), {}),
    (ATEN.index_put.default, (X, [None, torch.tensor([2, 0])], Y[:, :2]), {}),
    (ATEN.index_put.default, (X, [None, torch.tensor([2, -2, 2])], Y[:, :3], True), {}),
    (ATEN.put.default, (X, torch.tensor([1, 5, 1]), Y[0, 0, :3], True), {}),
    (ATEN.masked_scatter.default, (X, Y > 0, Y), {}),
    (ATEN.diagonal_scatter.default, (X, Y[0, :3].T), {}),
    (ATEN.diagonal_scatter.default, (X, Y[..., 0], -1, 2, 1), {}),
    (ATEN.index_fill.int_Scalar, (X, -1, torch.tensor([0, 3]), 7.0), {}),
    (ATEN.index_copy.default, (X, 1, torch.tensor([3, 0]), Y[:, :2]), {}),
    (ATEN.searchsorted.Tensor, (STEPS, torch.cat([STEPS, ODD])), {}),
    (ATEN.searchsorted.Tensor, (STEPS, X), {"right": True}),
    (ATEN.searchsorted.Tensor, (X.sort(-1).values, Y), {}),
    (ATEN.angle.default, (ODD,), {}),
    (ATEN.angle.default, (torch.complex(X, Y),), {}),
    (ATEN.atan2.default, (X, Y), {}),
    (ATEN.atan2.default, (ODD[:6], ODD[:6].roll(1)), {}),
    (ATEN.atan2.default, (ODD[:2].repeat(2), torch.tensor([0.0, 0.0, -0.0, -0.0])), {}),
    (ATEN.atan2.default, (ODD[:6], torch.tensor([-1.0, -1.0, 0.0, 0.0, -2.0, 3.0])), {}),
    *[
        (getattr(getattr(ATEN, name), kind), (BITS, other), {})
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for kind, other in (("Tensor", BITS.flip(0)), ("Scalar", 12345))
    ],
    (ATEN.bitwise_and.Tensor, (BITS.to(torch.int16), torch.tensor([7], dtype=torch.int16)), {}),
    *[
        (getattr(getattr(ATEN, name), kind), (WHOLE, other), {})
        for name, ends in (
            ("bitwise_left_shift", ("Tensor", "Tensor_Scalar")),
            ("bitwise_right_shift", ("Tensor", "Tensor_Scalar")),
            ("__lshift__", ("Tensor", "Scalar")),
            ("__rshift__", ("Tensor", "Scalar")),
        )
        for kind, other in zip(ends, (DIVISOR, 3), strict=True)
    ],
    (ATEN.bitwise_left_shift.Tensor, (torch.tensor([1, -1, 1]), torch.tensor([30, 30, 0])), {}),
    *[(ATEN.linalg_det.default, (SQUARE[..., :n, :n],), {}) for n in (1, 2, 3, 4)],
    *[(ATEN.linalg_inv.default, (SQUARE[..., :n, :n],), {}) for n in (1, 2, 3, 4)],
    (ATEN.linalg_inv_ex.default, (SQUARE,), {}),
    (
        ATEN.istft.default,
        (
            torch.stft(Y.reshape(3, 20), 8, 2, window=torch.ones(8), return_complex=True),
            8,
            2,
            None,
            torch.ones(8),
        ),
        {},
    ),
    (ATEN.bucketize.Tensor, (X, STEPS), {"right": True, "out_int32": True}),
]


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
    bags = {  # of several results, of which one is ever used: see below
        ATEN.embedding_bag.default,
        ATEN.embedding_bag.padding_idx,
        ATEN._embedding_bag.default,
        ATEN._embedding_bag_forward_only.default,
    }
    same = bags | {
        ATEN._cdist_forward.default,
        ATEN.diagonal_copy.default,
        ATEN.index_fill.int_Tensor,
    }
    assert set(ALL) - same == {operator for operator, _, _ in CASES}


def test_rules_leave_what_needs_none() -> None:
    assert SORT_RULES[ATEN.topk.default](X, 2, 2) is NotImplemented
    assert TFLITE[ATEN.flip.default](X, [-1, 1]) is NotImplemented
    assert TFLITE[ATEN.max.dim](X, 1) is NotImplemented
    assert TFLITE[ATEN.split.Tensor](X, 2, 1) is NotImplemented
    assert CORRECTIONS[ATEN.constant_pad_nd.default](X, [1, 0]) is NotImplemented
    assert RULES[ATEN.one_hot.default](DIVISOR) is NotImplemented
    assert RULES[ATEN.linalg_inv.default](torch.eye(5)) is NotImplemented
    assert RULES[ATEN.bitwise_and.Tensor](X > 0, Y > 0) is NotImplemented
    assert RULES[ATEN.bitwise_left_shift.Tensor](X, 1) is NotImplemented


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("how", [{}, {"padding_idx": 3}, {"include_last_offset": True}])
def test_bags_of_embeddings(mode: str, how: dict[str, Any]) -> None:
    words, starts = torch.tensor([3, 1, 4, 1, 5, 3, 3]), torch.tensor([0, 2, 2, 5, 7])
    starts = starts if "include_last_offset" in how else starts[:-1]
    bag = torch.nn.EmbeddingBag(6, 5, mode=mode, **how)
    wanted = bag(words, starts)
    rule = RULES[ATEN.embedding_bag.padding_idx]
    number = ("sum", "mean", "max").index(mode)
    got = rule(
        bag.weight,
        words,
        starts,
        False,
        number,
        False,
        None,
        how.get("include_last_offset", False),
        how.get("padding_idx"),
    )
    torch.testing.assert_close(got[0], wanted)


def test_a_weighted_bag() -> None:
    words, weights = torch.tensor([[3, 1, 4], [1, 5, 2]]), torch.rand(2, 3)
    bag = torch.nn.EmbeddingBag(6, 5, mode="sum")
    rule = RULES[ATEN.embedding_bag.padding_idx]
    got = rule(
        bag.weight, words.reshape(-1), torch.tensor([0, 3]), False, 0, False, weights.reshape(-1)
    )
    torch.testing.assert_close(got[0], bag(words, per_sample_weights=weights))
