"""Bits of whole numbers by arithmetic, for formats that know bits of truth values at most.

A number is taken as two halves of 16 bits, each half apart into its bits: no step needs more than
the 32 bits that formats have, and the sign is bit 15 of the upper half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten
_HALF = 1 << 16


def _powers(exponent: Tensor) -> Tensor:
    """2 to the given whole numbers, from 0 to 30: the squares of squares that their bits name."""
    made = torch.ones_like(exponent)
    for place in range(5):
        bit = torch.remainder(torch.div(exponent, 1 << place, rounding_mode="floor"), 2)
        made = made * (bit * ((1 << (1 << place)) - 1) + 1)
    return made


def _weights(like: Tensor) -> Tensor:
    return _powers(torch.arange(16, dtype=like.dtype, device=like.device))


def _bits(x: Tensor) -> Tensor:
    """[n] to [n, 16]: the bits of numbers from 0 to 65535, lowest first."""
    return torch.remainder(torch.div(x.unsqueeze(-1), _weights(x), rounding_mode="floor"), 2)


def _number(bits: Tensor) -> Tensor:
    return (bits * _weights(bits)).sum(-1).to(bits.dtype)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper 16 bits, both from 0 to 65535."""
    low = torch.remainder(x, _HALF)
    high = torch.div(x, _HALF, rounding_mode="floor")
    return low, torch.remainder(high, _HALF)


def _bitwise(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Any]:
    """An operator on bits from what it does to two bits that are 0 or 1."""

    def rule(x: Any, y: Any) -> Any:
        if not isinstance(x, Tensor) or isinstance(y, bool):
            return NotImplemented
        y = y if isinstance(y, Tensor) else torch.full_like(x, y)
        kind = torch.result_type(x, y)
        if kind.is_floating_point or kind in (torch.bool, torch.uint8):
            return NotImplemented
        shape: Any = torch.broadcast_shapes(x.shape, y.shape)  # type: ignore[no-untyped-call]
        wide = [each.to(torch.int32).expand(shape or (1,)).reshape(-1) for each in (x, y)]
        (low, high), (other, upper) = map(_halves, wide)
        lower = _number(join(_bits(low), _bits(other)))
        above = _number(join(_bits(high), _bits(upper)))
        signed = torch.where(above >= _HALF // 2, above - _HALF, above)
        made = (signed * _HALF + lower).to(kind)
        return made.reshape(shape) if shape else made.squeeze(0)

    return rule


def _factor(places: Any) -> Any:
    if isinstance(places, Tensor):
        return _powers(places)
    return 1 << places if 0 <= places <= 30 else None


def _is_whole(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_floating_point() and x.dtype is not torch.bool


def _left(x: Tensor, y: Any) -> Any:
    powers = _factor(y) if _is_whole(x) else None
    return NotImplemented if powers is None else x * powers


def _right(x: Tensor, y: Any) -> Any:
    """The sign stays, as it does for signed numbers."""
    powers = _factor(y) if _is_whole(x) else None
    return NotImplemented if powers is None else torch.div(x, powers, rounding_mode="floor")


_JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bitwise_and": lambda a, b: a * b,
    "bitwise_or": lambda a, b: a + b - a * b,
    "bitwise_xor": lambda a, b: torch.remainder(a + b, 2),
}

#: Rules by operator; `NotImplemented` leaves it as it is: truth values above all.
BITWISE_RULES: dict[Any, Callable[..., Any]] = {
    getattr(getattr(_ATEN, name), overload): _bitwise(join)
    for name, join in _JOINS.items()
    for overload in ("Tensor", "Scalar")
}

#: Shifts by 30 places at most, left ones within the format's 32 bits.
SHIFT_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.bitwise_left_shift.Tensor: _left,
    _ATEN.bitwise_left_shift.Tensor_Scalar: _left,
    _ATEN.bitwise_right_shift.Tensor: _right,
    _ATEN.bitwise_right_shift.Tensor_Scalar: _right,
    _ATEN.__lshift__.Tensor: _left,
    _ATEN.__lshift__.Scalar: _left,
    _ATEN.__rshift__.Tensor: _right,
    _ATEN.__rshift__.Scalar: _right,
}
