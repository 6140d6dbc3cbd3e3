"""Uses of operators that litert_torch knows and cannot translate, in words that it can.

A rule that has nothing to correct leaves the operator as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.tflite.sorting import SORTING
from edgeserve.backends.torch.rules import RULES
from edgeserve.backends.torch.rules_bits import BIT_RULES, SHIFT_RULES
from edgeserve.backends.torch.rules_places import ADDING_RULES, PLACE_RULES
from edgeserve.backends.torch.rules_small import SMALL_RULES

__all__ = ["CORRECTIONS"]

_ATEN = torch.ops.aten


def _either(x: Tensor, y: Tensor) -> Any:
    """One and not the other: they differ."""
    if x.dtype != torch.bool or y.dtype != torch.bool:
        return NotImplemented
    return x.to(torch.int32) != y.to(torch.int32)


def _bits(x: Tensor, y: Tensor) -> Any:
    """The kernel takes 32 bits, which is what the format's integers have anyway."""
    if x.dtype != torch.int64 or y.dtype != torch.int64:
        return NotImplemented
    return torch.bitwise_xor(x.to(torch.int32), y.to(torch.int32)).to(torch.int64)


def _bits_turned(x: Tensor) -> Any:
    return NotImplemented if x.dtype == torch.bool else -1 - x


def _power(x: Tensor, exponent: Any) -> Any:
    """Small powers of integers by multiplication; the converter takes them to 64 bits and back."""
    if x.is_floating_point() or type(exponent) is not int or not 1 <= exponent <= 8:
        return NotImplemented
    made = x
    for _ in range(exponent - 1):
        made = made * x
    return made if exponent > 1 else x.clone()


def _rest(x: Tensor, y: Any) -> Any:
    if x.is_floating_point() or not isinstance(y, Tensor) or y.is_floating_point():
        return NotImplemented
    return x - torch.div(x, y, rounding_mode="trunc") * y


#: Rules by operator; `NotImplemented` leaves it as it is.
CORRECTIONS: dict[Any, Callable[..., Any]] = {
    **ADDING_RULES,
    **BIT_RULES,
    **PLACE_RULES,
    **SHIFT_RULES,
    **SMALL_RULES,
    **SORTING,
    _ATEN.bilinear.default: RULES[_ATEN.bilinear.default],
    _ATEN.bitwise_not.default: _bits_turned,
    _ATEN.bitwise_xor.Tensor: _bits,
    _ATEN.fmod.Tensor: _rest,
    _ATEN.logical_xor.default: _either,
    _ATEN.one_hot.default: RULES[_ATEN.one_hot.default],
    _ATEN.pow.Tensor_Scalar: _power,
    _ATEN.rrelu.default: RULES[_ATEN.rrelu.default],
}
