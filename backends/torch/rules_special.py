"""Special functions, for formats that lack them; to float32's own accuracy.

Sources: Abramowitz and Stegun, Handbook of Mathematical Functions: 6.1.41 and 6.3.18 (asymptotic
series, reached by recurrence), 6.1.17 and 6.3.7 (reflection), 9.8.1 and 9.8.2 (Bessel I0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["SPECIAL_RULES"]

_ATEN = torch.ops.aten

#: How far an argument is moved up before the series holds.
_STEPS = 7

_I0_SMALL = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_I0_LARGE = (
    0.00392377,
    -0.01647633,
    0.02635537,
    -0.02057706,
    0.00916281,
    -0.00157565,
    0.00225319,
    0.01328592,
    0.39894228,
)


def _polynomial(x: Tensor, factors: tuple[float, ...]) -> Tensor:
    made = torch.full_like(x, factors[0])
    for factor in factors[1:]:
        made = made * x + factor
    return made


def _i0(x: Tensor) -> Tensor:
    size = x.abs()
    near, far = torch.clamp(size, max=3.75) / 3.75, torch.clamp(size, min=3.75)
    outside = torch.exp(far) / torch.sqrt(far) * _polynomial(3.75 / far, _I0_LARGE)
    return torch.where(size <= 3.75, _polynomial(near * near, _I0_SMALL), outside)


def _lgamma(x: Tensor) -> Tensor:
    low = x < 0.5
    up = torch.where(low, 1 - x, x)
    product = up
    for step in range(1, _STEPS):
        product = product * (up + step)
    far = up + _STEPS
    inverse = 1 / far
    series = inverse * (1 / 12 - inverse * inverse * (1 / 360 - inverse * inverse / 1260))
    stirling = (far - 0.5) * torch.log(far) - far + 0.5 * math.log(2 * math.pi) + series
    above = stirling - torch.log(product)
    return torch.where(low, math.log(math.pi) - torch.log(_sine(x).abs()) - above, above)


def _digamma(x: Tensor) -> Tensor:
    low = x < 0.5
    up = torch.where(low, 1 - x, x)
    rest = 1 / up
    for step in range(1, _STEPS):
        rest = rest + 1 / (up + step)
    far = up + _STEPS
    square = 1 / (far * far)
    series = square * (1 / 12 - square * (1 / 120 - square / 252))
    above = torch.log(far) - 0.5 / far - series - rest
    return torch.where(low, above - math.pi * _sine(x + 0.5) / _sine(x), above)


def _sine(x: Tensor) -> Tensor:
    """sin(pi x), exact at whole numbers."""
    turns = x - 2 * torch.round(x / 2)
    return torch.sin(math.pi * torch.where(turns.abs() > 0.5, torch.sign(turns) - turns, turns))


#: Rules by operator.
SPECIAL_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.digamma.default: _digamma,
    _ATEN.i0.default: _i0,
    _ATEN.lgamma.default: _lgamma,
    _ATEN.special_i0.default: _i0,
}
