"""The mutants: a program, the operator whose lowering is made wrong, and the wrong rule.

Programs are taken by name as factories: ``dev.mutants.table:division``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FORMATS = ("onnx", "tflite", "coreml")

_SIDE = 6
_KERNEL = torch.randn(5, 1, 3, 3, generator=torch.Generator().manual_seed(0))
_BUCKETS = torch.tensor([-3.0, 0.25, 0.5, 4.0])


@dataclass(frozen=True)
class Mutant:
    """A wrong lowering.

    Attributes:
        kind: "rounding", "sign", "cast", "mask", "axis" or "reduction".
        operator: The operator's name without namespace and overload.
        function: The program, of one tensor; the line that calls the operator is its own.
        wrong: What takes the operator's place, with the operator's arguments.
        whole: The input holds whole numbers.
        rule: Of a table of edgeserve's own decompositions: only in this format, and by its key.
    """

    kind: str
    operator: str
    function: Callable[[Tensor], Tensor]
    wrong: Callable[..., Any]
    whole: bool = False
    rule: tuple[str, Any] | None = None

    @property
    def formats(self) -> tuple[str, ...]:
        """Where it applies."""
        return (self.rule[0],) if self.rule else FORMATS


class Program(nn.Module):
    """A function of a tensor [1, 6, 6], and a linear layer behind it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.head = nn.Linear(_SIDE, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.function(x).float() * 0.125)
        return made


def _cast(x: Tensor, dtype: torch.dtype, *_: Any) -> Tensor:
    """Casts to whole numbers that round where they are to cut off."""
    return x.to(dtype) if dtype.is_floating_point else x.round().to(dtype)


def _by_floats(x: Tensor, y: int, rounding_mode: str = "floor") -> Tensor:
    return torch.floor(x.float() / y).long()


_aten = torch.ops.aten

#: By name, which is that of the program too.
MUTANTS: dict[str, Mutant] = {
    "division": Mutant(
        "rounding",
        "div",
        lambda x: torch.div(x, 3600, rounding_mode="floor") % 24,
        _by_floats,
        whole=True,
    ),
    "truncation": Mutant(
        "rounding",
        "div",
        lambda x: torch.div(x, 7, rounding_mode="trunc"),
        lambda x, y, rounding_mode: torch.div(x, y, rounding_mode="floor"),
        whole=True,
    ),
    "floor": Mutant("rounding", "floor", lambda x: torch.floor(x), torch.round),
    "round": Mutant("rounding", "round", lambda x: torch.round(x), lambda x: torch.floor(x + 0.5)),
    "neg": Mutant("sign", "neg", lambda x: -x * x, torch.clone),
    "sub": Mutant("sign", "sub", lambda x: x - x.mean(-1, True) * 2, torch.add),
    "rsub": Mutant("sign", "rsub", lambda x: 1 - x, lambda x, y: x - y),
    "cast": Mutant("cast", "to", lambda x: x.to(torch.int32), _cast),
    "remainder": Mutant(
        "cast",
        "remainder",
        lambda x: x % 7,
        lambda x, y: (x.float() - torch.floor(x.float() / y) * y).long(),
        whole=True,
    ),
    "where": Mutant(
        "mask",
        "where",
        lambda x: torch.where(x > 0.5, x, x * 3),
        lambda mask, x, y: torch.where(mask, y, x),
    ),
    "masked_fill": Mutant(
        "mask",
        "masked_fill",
        lambda x: x.masked_fill(x < -0.5, 2.0),
        lambda x, mask, value: x.masked_fill(~mask, value),
    ),
    "compare": Mutant("mask", "ge", lambda x: x >= 40, torch.gt),
    "clamp": Mutant(
        "mask", "clamp", lambda x: x.clamp(-6, 6), lambda x, low, high: torch.clamp(x, min=low)
    ),
    "bucketize": Mutant(
        "mask",
        "bucketize",
        lambda x: torch.bucketize(x, _BUCKETS),
        lambda x, edges, **how: torch.bucketize(x, edges, right=True),
    ),
    "softmax": Mutant(
        "axis", "softmax", lambda x: x.softmax(-1) * 4, lambda x, *a, **k: x.softmax(-2)
    ),
    "cumsum": Mutant("axis", "cumsum", lambda x: x.cumsum(1), lambda x, axis: x.cumsum(2)),
    "flip": Mutant("axis", "flip", lambda x: x.flip(2), lambda x, axes: x.flip(1)),
    "sum": Mutant(
        "reduction",
        "sum",
        lambda x: x * x.sum(-1, keepdim=True),
        lambda x, axes, keepdim: x.mean(axes, keepdim),
    ),
    "amax": Mutant(
        "reduction",
        "amax",
        lambda x: torch.conv2d(x[:, None], _KERNEL, padding=1).relu().amax(1),
        lambda x, axes: x.mean(axes),
    ),
    "copysign": Mutant(
        "sign",
        "copysign",
        lambda x: torch.copysign(x, x.flip(2)),
        lambda x, y: x.abs(),
        rule=("onnx", _aten.copysign.Tensor),
    ),
    "hypot": Mutant(
        "sign",
        "hypot",
        lambda x: torch.hypot(x, x.flip(2)),
        lambda x, y: torch.sqrt((x * x - y * y).abs()),
        rule=("onnx", _aten.hypot.default),
    ),
    "integer_sign": Mutant(
        "sign",
        "sign",
        lambda x: torch.sign(x),
        lambda x: (x > 0).to(x.dtype),
        whole=True,
        rule=("tflite", _aten.sign.default),
    ),
}
