"""Calls that random programs found wrong, refused or crashing: each answers as eager PyTorch."""

from __future__ import annotations

import pytest

from dev.fuzz.judge import judge
from dev.fuzz.program import Input, Program, Step

INPUTS = (
    Input("x0", "float32", (2, 3, 2, 3), -2, 2),
    Input("x1", "int64", (4, 5), -(2**25), 2**25),
)
S = "x0.sum()"
CALLS = (
    # Along an axis of a tensor that has none.
    f"{S}.cumsum(0)",
    f"{S}.cumprod(-1)",
    f"{S}.cummax(0)[0]",
    f"{S}.topk(1)[0]",
    f"{S}.sort(0)[0]",
    f"{S}.median(-1)[0]",
    f"{S}.kthvalue(1, 0)[0] + 1",
    f"{S}.softmax(0) + {S}",
    f"{S}.amax(0) * 2",
    f"{S}.argmax(0) + x1.sum()",
    f"{S}.tile((1, 2))",
    # Constants without axes.
    f"torch.where({S} > 0, {S}, 3.0)",
    f"torch.fmod({S}, 2.0)",
    f"torch.atan2({S}, {S} + 1)",
    # Integers of 64 bits.
    "torch.abs(x1)",
    "x1.argmax()",
    "x1.argmin(1, keepdim=True)",
    "x1.min(-1, keepdim=True)[1]",
    "x1.max(0)[0]",
    "x1.cummax(1)[0]",
    "x1.cummin(0)[1]",
    "x1.index_put((torch.tensor([0, -1]),), x1[:1])",
    # More axes inside than outside.
    "torch.kron(x0, x0[:, :1])",
    f"torch.kron({S}, {S} + 1)",
    f"torch.kron({S}, x0[0, 0])",
    # Truth values that are moved.
    "(x1 > 0).unfold(0, 2, 1)",
    "(x1 > 0).slice_scatter((x1 < 0)[:1], 0, 1, 2)",
    "(x1 > 0).index_select(1, torch.tensor([2, 0]))",
    "f.pad(x1 > 0, (1, 2), value=True)",
    # A squeeze that takes no axis away, whole numbers under relu, maxima without their places.
    "x0.squeeze(1) * 2",
    "torch.relu(x1)",
    "f.adaptive_max_pool2d(x0, (2, 2))",
    "f.adaptive_max_pool2d(x0[0], (1, 2))",
    # Outputs that are an input, and an earlier output, under another name.
    "x0.flatten(-1)",
    "(x0 * 3).to(torch.float32)",
    "x1.index_fill(1, torch.tensor([0, 2]), 1)",
    "x0.scatter(1, torch.zeros(2, 1, 2, 3, dtype=torch.int64), 2)",
    "x1.scatter(1, torch.zeros(4, 3, dtype=torch.int64), 2)",
    "x1.scatter(1, torch.ones(4, 1, dtype=torch.int64), x1 * 2)",
    "x1.to(torch.int32).scatter(0, torch.ones(2, 5, dtype=torch.int64), -3)",
    "f.conv_transpose2d(x0, torch.ones(3, 2, 2, 2, dtype=x0.dtype) / 8, None, 2, 0, 1)",
    # Integers that go through floats, and floats that do not stay whole numbers.
    "f.pad(x1, (0, 2, 1, 0), value=7)",
    "x0.to(torch.int64).to(torch.bool)",
    "x0.to(torch.int64).any(-1)",
    "x1.all(0)",
    # Reductions of all axes behind a transpose.
    *(f"torch.atan(x0.permute(3, 2, 1, 0)).{call}()" for call in "mean sum prod amax max".split()),
    *(f"torch.atan(x0.permute(3, 2, 1, 0)).{call}()" for call in "min std var norm".split()),
    "(x1 % 9).permute(1, 0).sum()",
    # Variances that name no correction.
    "x0.var()",
    "torch.var(x0, dim=(0, 1), correction=None)",
    "torch.std(x0, dim=1, correction=None)",
    # Truth values that are chosen.
    "torch.where(x1 > 0, x1 < 3, x1 > 9)",
    "(x1 > 0).masked_fill(x1 > 3, False)",
    "(x1 > 0).index_fill(0, torch.tensor([1, 2]), 1)",
    "x0.median()",
    "torch.einsum('...a,ab->b...', x0.median(1)[0], torch.ones(3, 2, dtype=x0.dtype))",
    "torch.bitwise_and(x1.sum(), x1.sum() + 1)",
    # Copies that are sorted along another axis than the last.
    "x0[:, :, :1].expand(2, 3, 4, 3).sort(0)[0]",
    "x0.repeat(1, 1, 1, 2).kthvalue(2, 1)[0]",
    "x1[:, :1].reshape(2, 1, 2, 1).expand(2, 3, 2, 4).topk(1, 0)[1]",
    "torch.tensordot(x0[:, :, :1].expand(2, 3, 4, 3), x0, ([0, 3], [0, 3]))",
    "f.pad(x0[:, :, :1].expand(2, 3, 4, 3), (1, 1, 0, 1), mode='reflect')",
    # No batch.
    "f.unfold(x0[0], 2, padding=1)",
    "f.avg_pool3d(x0, 2, padding=1)",
    # A last window that would start in the padding.
    "f.max_pool2d(x0[:, :, :1], 2, 2, 1, 1, True)",
    "f.avg_pool2d(x0[:, :, :1], 2, 2, 1, True, False)",
)
# Between convolutions, where LiteRT's layout is channels last.
PLACES = "torch.tensor([[0, 1], [2, 0]])"
BETWEEN = (
    "{v}.repeat(1, 1, 2, 1)",
    "{v}.repeat(1, 2, 1, 1)",
    "{v}.tile((1, 3))",
    "{v}.select_scatter({v}[:, 0], 1, 2)",
    "torch.cdist({v}, {v} * 0.5)",
    f"{{v}}[:, :, {PLACES} % 2, {PLACES}]",
    f"{{v}}[:, {PLACES}, {PLACES} % 2]",
    f"{{v}}[:, {PLACES}, :, {PLACES}]",
    f"{{v}}[{PLACES} % 2, {PLACES}]",
    "{v}[:, :, :, torch.tensor([2, 0])]",
)
WEIGHT = "(torch.arange(9.).reshape(3, 3, 1, 1) / 8 - 0.5).to(x0.dtype)"
CALLS += tuple(
    f"f.max_pool2d({call.format(v=f'f.conv2d(x0, {WEIGHT})')}, (1, 2), 1)" for call in BETWEEN
)
#: One value of 64 bits under two names.
PAIR = Step("pair", ("v998", "v999"), "torch.broadcast_tensors(*[x1 // 5] * 2)", "whole")
STEPS = (*(Step(call, (f"v{place}",), call, "whole") for place, call in enumerate(CALLS)), PAIR)


@pytest.mark.parametrize("format", ["onnx", "tflite", "coreml"])
def test_what_was_found_is_right(format: str) -> None:
    program = Program(0, INPUTS, STEPS, tuple(name for step in STEPS for name in step.targets))
    row = judge(program, format)
    assert row["status"] == "right", row["said"]
