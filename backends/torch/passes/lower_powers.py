"""Lower powers of integers to products.

ONNX Runtime computes them in float64, which has 53 bits, and LiteRT's converter needs float64
that LiteRT has not. A power is the product of the squares of squares that the bits of its exponent
name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.passes.fx_utils import inline, is_float, overloads, replace_each

_POWERS = overloads("pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar")

#: Places of an exponent's bits; larger powers of anything but 0, 1 and -1 exceed 64 bits.
_PLACES = 6


def lower_integer_powers(module: fx.GraphModule) -> bool:
    """Replace ``pow`` of integers with exponents that are not negative."""

    def lower(node: fx.Node) -> fx.Node | None:
        base, exponent = node.args
        negative = isinstance(exponent, int) and exponent < 0
        if is_float(node) or node.meta["val"].dtype is torch.bool or negative:
            return None
        rule = _power if isinstance(exponent, int) else _power_of_tensor
        made: fx.Node = inline(module, node, rule, (base, exponent))
        return made

    return replace_each(module, _POWERS, lower)


def _power(x: Tensor, exponent: int) -> Tensor:
    made = None if exponent else torch.ones_like(x)
    while exponent:
        if exponent % 2:
            made = x if made is None else made * x
        exponent //= 2
        x = x * x if exponent else x
    return made.clone() if made is x else made  # type: ignore[union-attr, return-value]


def _power_of_tensor(base: Any, exponent: Tensor) -> Tensor:
    """Larger exponents keep their parity, all that 0, 1 and -1 depend on."""
    x = base if isinstance(base, Tensor) else torch.full_like(exponent, base)
    rest = torch.where(exponent >= 1 << _PLACES, 62 + torch.remainder(exponent, 2), exponent)
    made = torch.ones_like(x)
    for place in range(_PLACES):
        bit = torch.remainder(rest, 2)
        made = made * torch.where(bit > 0, x, torch.ones_like(x))
        rest = torch.floor_divide(rest, 2)
        x = x * x if place < _PLACES - 1 else x
    return made
