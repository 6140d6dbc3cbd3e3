"""Comparison and logic, elementwise and broadcast; every result is boolean.

A comparison with NaN is false, but for ``not_equal``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel

__all__ = ["logical_not"]

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "equal": torch.eq,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "not_equal": torch.ne,
}


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y)

    return compute


for _name, _function in _BINARY.items():
    kernel(_name)(_binary(_function))


@kernel("logical_not")
def logical_not(x: Tensor) -> Tensor:
    """True where ``x`` is false."""
    return torch.logical_not(x)
