"""The table of our own decompositions, for operators that PyTorch's tables have none for.

Each rule is written with operators that all formats know. A format applies it where it has no
translation of its own; rounding aside it gives what PyTorch gives. Elementwise functions and the
special functions stand here, the latter to float32's own accuracy. Their sources: Abramowitz and
Stegun, Handbook of Mathematical Functions: 6.1.41 and 6.3.18 (asymptotic series, reached by
recurrence), 6.1.17 and 6.3.7 (reflection), 9.8.1 and 9.8.2 (Bessel I0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.torch.decompositions.bitwise import BITWISE_RULES, SHIFT_RULES
from edgeserve.backends.torch.decompositions.fft import SIGNAL_RULES
from edgeserve.backends.torch.decompositions.indexing import INDEXING_RULES, ORDERING_RULES
from edgeserve.backends.torch.decompositions.linalg_small import LINALG_RULES
from edgeserve.backends.torch.decompositions.scatter import PLACING_RULES

_ATEN = torch.ops.aten

#: How far an argument is moved up before the series holds.
_RECURRENCE_STEPS = 7


def _factors(numbers: str) -> tuple[float, ...]:
    """Of a polynomial, the highest power's first."""
    return tuple(map(float, numbers.split()))


_I0_SMALL = _factors("0.0045813 0.0360768 0.2659732 1.2067492 3.0899424 3.5156229 1.0")
_I0_LARGE = _factors(
    "0.00392377 -0.01647633 0.02635537 -0.02057706 0.00916281 -0.00157565 0.00225319 "
    "0.01328592 0.39894228"
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
    for step in range(1, _RECURRENCE_STEPS):
        product = product * (up + step)
    far = up + _RECURRENCE_STEPS
    inverse = 1 / far
    series = inverse * (1 / 12 - inverse * inverse * (1 / 360 - inverse * inverse / 1260))
    stirling = (far - 0.5) * torch.log(far) - far + 0.5 * math.log(2 * math.pi) + series
    above = stirling - torch.log(product)
    return torch.where(low, math.log(math.pi) - torch.log(_sine(x).abs()) - above, above)


def _digamma(x: Tensor) -> Tensor:
    low = x < 0.5
    up = torch.where(low, 1 - x, x)
    rest = 1 / up
    for step in range(1, _RECURRENCE_STEPS):
        rest = rest + 1 / (up + step)
    far = up + _RECURRENCE_STEPS
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


def _exp2(x: Tensor) -> Tensor:
    return torch.exp(x * math.log(2))


def _asinh(x: Tensor) -> Tensor:
    size = x.abs()
    return torch.sign(x) * torch.log1p(size + size * size / (torch.sqrt(size * size + 1) + 1))


def _trunc(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.ceil(x), torch.floor(x)) if x.is_floating_point() else x.clone()


def _signbit(x: Tensor) -> Tensor:
    """Zero has a sign too, which its reciprocal shows."""
    if not x.is_floating_point():
        return x < 0
    below = torch.logical_and(x == 0, torch.reciprocal(x) < 0)
    return torch.logical_or(x < 0, below)


def _numbers_first(x: Tensor, y: Tensor, choose: Callable[..., Tensor]) -> Tensor:
    return torch.where(x != x, y, torch.where(y != y, x, choose(x, y)))


def _fmod(x: Tensor, y: Any) -> Tensor:
    """What is left of a division that cuts off; it has the sign of ``x``."""
    if isinstance(y, Tensor) and not x.is_floating_point() and not y.is_floating_point():
        return x - torch.div(x, y, rounding_mode="trunc") * y
    return x - _trunc(x / y) * y  # type: ignore[no-any-return]


def _round(x: Tensor, *, decimals: int) -> Tensor:
    factor = 10.0 ** abs(decimals)
    return torch.round(x * factor) / factor if decimals >= 0 else torch.round(x / factor) * factor


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    """By quadrants; the sign of a zero decides like any other."""
    upright = x == 0
    angle = torch.atan(y / torch.where(upright, torch.ones_like(x), x))
    pole = torch.where(y == 0, y, torch.sign(y) * (math.pi / 2))
    half = torch.where(_signbit(y), torch.full_like(y, -math.pi), torch.full_like(y, math.pi))
    turned = torch.logical_and(_signbit(x), torch.logical_or(x != 0, y == 0))
    made = torch.where(upright, pole, angle)
    return torch.where(turned, made + half, made)


def _angle(x: Tensor) -> Tensor:
    if x.is_complex():
        return _atan2(x.imag, x.real)
    turned = torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x))
    return torch.where(x == x, turned, x)


def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    most = torch.maximum(x, y)
    return most + torch.log2(_exp2(x - most) + _exp2(y - most))


def _rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    if training:
        return NotImplemented
    return torch.where(x > 0, x, x * ((lower + upper) / 2))


def _copysign(x: Tensor, y: Any) -> Tensor:
    size = x.abs()
    if isinstance(y, Tensor):
        return torch.where(_signbit(y), -size, size)
    return -size if math.copysign(1, y) < 0 else size


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """For each output a matrix between the two: [..., i], [o, i, j], [..., j] to [..., o]."""
    count, rows, columns = weight.shape
    flat = x.reshape(-1, rows) @ weight.permute(1, 0, 2).reshape(rows, count * columns)
    parts = flat.reshape(-1, count, columns) * y.reshape(-1, 1, columns)
    made = parts.sum(-1).reshape(*x.shape[:-1], count)
    return made if bias is None else made + bias


def _cdist(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, dim=-1)  # type: ignore[no-any-return]


def _kron(x: Tensor, y: Tensor) -> Tensor:
    """Each element of ``x`` times all of ``y``, one axis at a time: PyTorch doubles the axes."""
    rank = max(x.dim(), y.dim())
    if not rank:
        return x * y
    x, y = (each.reshape([1] * (rank - each.dim()) + list(each.shape)) for each in (x, y))
    wide = x
    for axis, size in enumerate(y.shape):
        wide = wide.repeat_interleave(size, axis)
    return wide * y.repeat(x.shape)


def _var_mean(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    axes = list(range(x.dim())) if dim is None else dim
    spread = torch.var(x, axes, correction=1 if correction is None else correction, keepdim=keepdim)
    return spread, torch.mean(x, axes, keepdim)


def _one_hot(x: Tensor, num_classes: int = -1) -> Any:
    if num_classes < 0:
        return NotImplemented  # as many as the largest value says
    return (x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)).to(torch.int64)


#: M. Giles, Approximating the erfinv function (2010), single precision: near the middle, outside.
_MIDDLE = _factors(
    "2.81022636e-08 3.43273939e-07 -3.5233877e-06 -4.39150654e-06 0.00021858087 "
    "-0.00125372503 -0.00417768164 0.246640727 1.50140941"
)
_OUTSIDE = _factors(
    "-0.000200214257 0.000100950558 0.00134934322 -0.00367342844 0.00573950773 "
    "-0.0076224613 0.00943887047 1.00167406 2.83297682"
)


def _erfinv(x: Tensor) -> Tensor:
    depth = -torch.log((1 - x) * (1 + x))
    near, far = depth - 2.5, torch.sqrt(torch.clamp(depth, min=5)) - 3
    middle, outside = torch.full_like(x, _MIDDLE[0]), torch.full_like(x, _OUTSIDE[0])
    for inner, outer in zip(_MIDDLE[1:], _OUTSIDE[1:], strict=True):
        middle, outside = middle * near + inner, outside * far + outer
    return x * torch.where(depth < 5, middle, outside)


#: Rules by operator.
RULES: dict[Any, Callable[..., Any]] = {
    **BITWISE_RULES,
    **ORDERING_RULES,
    **INDEXING_RULES,
    **PLACING_RULES,
    **SHIFT_RULES,
    **SIGNAL_RULES,
    **LINALG_RULES,
    **SPECIAL_RULES,
    _ATEN.acosh.default: lambda x: torch.log(x + torch.sqrt(x * x - 1)),
    _ATEN.angle.default: _angle,
    _ATEN.asinh.default: _asinh,
    _ATEN._cdist_forward.default: _cdist,
    _ATEN.atan2.default: _atan2,
    _ATEN.bilinear.default: _bilinear,
    _ATEN.cdist.default: _cdist,
    _ATEN.copysign.Scalar: _copysign,
    _ATEN.copysign.Tensor: _copysign,
    _ATEN.erfc.default: lambda x: 1 - torch.erf(x),
    _ATEN.erfinv.default: _erfinv,
    _ATEN.exp2.default: _exp2,
    # Where one is not a number, the other.
    _ATEN.fmax.default: lambda x, y: _numbers_first(x, y, torch.maximum),
    _ATEN.fmin.default: lambda x, y: _numbers_first(x, y, torch.minimum),
    _ATEN.fmod.Scalar: _fmod,
    _ATEN.fmod.Tensor: _fmod,
    _ATEN.frac.default: lambda x: x - _trunc(x),
    _ATEN.hypot.default: lambda x, y: torch.sqrt(x * x + y * y),
    _ATEN.kron.default: _kron,
    _ATEN.logaddexp2.default: _logaddexp2,
    _ATEN.round.decimals: _round,
    _ATEN.norm.Scalar: lambda x, p=2: torch.linalg.vector_norm(x, p),
    _ATEN.one_hot.default: _one_hot,
    _ATEN.rrelu.default: _rrelu,
    _ATEN.signbit.default: _signbit,
    _ATEN.trunc.default: _trunc,
    _ATEN.var_mean.correction: _var_mean,
}
