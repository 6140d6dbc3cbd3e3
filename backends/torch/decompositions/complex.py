"""Arithmetic on complex tensors in real numbers: each is a `ComplexPair`.

An operator that does the same to both parts (shapes, sums, indices) is applied to each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.torch.decompositions.fft import FFT_RULES, ComplexPair, complex_pair

_ATEN = torch.ops.aten


def by_parts(operator: Any) -> Callable[..., Any]:
    """An operator applied to real parts and to imaginary parts."""

    def rule(*args: Any, **named: Any) -> Any:
        re, im = (operator(*_part(args, i), **named) for i in (0, 1))
        if isinstance(re, Tensor):
            return ComplexPair(re, im)
        return [ComplexPair(*both) for both in zip(re, im, strict=True)]

    return rule


def _part(given: Any, index: int) -> Any:
    if isinstance(given, ComplexPair):
        return given[index]
    if isinstance(given, list | tuple):
        return type(given)([_part(each, index) for each in given])
    return given


def _add(x: Any, y: Any, *, alpha: Any = 1) -> ComplexPair:
    """Real numbers touch one part only."""
    a, b = complex_pair(x), complex_pair(y)
    if alpha != 1:
        b = ComplexPair(b.re * alpha, b.im * alpha)
    return ComplexPair(a.re + b.re, a.im + b.im)


def _sub(x: Any, y: Any, *, alpha: Any = 1) -> ComplexPair:
    return _add(x, _neg(complex_pair(y)), alpha=alpha)


def _rsub(x: Any, y: Any, alpha: Any = 1) -> ComplexPair:
    return _sub(y, x, alpha=alpha)


def _neg(z: ComplexPair) -> ComplexPair:
    return ComplexPair(-z.re, -z.im)


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor | int | float)


def _mul(x: Any, y: Any) -> ComplexPair:
    if _is_real(x):
        x, y = y, x
    a = complex_pair(x)
    if _is_real(y):
        return ComplexPair(a.re * y, a.im * y)
    b = complex_pair(y)
    return ComplexPair(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _div(x: Any, y: Any) -> ComplexPair:
    if _is_real(y):
        a = complex_pair(x)
        return ComplexPair(a.re / y, a.im / y)
    return _mul(x, _reciprocal(complex_pair(y)))


def _reciprocal(z: ComplexPair) -> ComplexPair:
    size = z.re * z.re + z.im * z.im
    return ComplexPair(z.re / size, -z.im / size)


def _bilinear_rule(operator: Any) -> Callable[..., ComplexPair]:
    """An operator that is linear in two of its arguments: a product of matrices, or an einsum."""

    def rule(x: Any, y: Any) -> ComplexPair:
        if isinstance(x, Tensor):
            return ComplexPair(operator(x, y.re), operator(x, y.im))
        if isinstance(y, Tensor):
            return ComplexPair(operator(x.re, y), operator(x.im, y))
        return ComplexPair(
            operator(x.re, y.re) - operator(x.im, y.im), operator(x.re, y.im) + operator(x.im, y.re)
        )

    return rule


def _einsum(equation: str, tensors: Any, *, path: Any = None) -> Any:
    if len(tensors) == 1:
        return by_parts(_ATEN.einsum.default)(equation, tensors)
    if len(tensors) > 2:
        return NotImplemented
    return _bilinear_rule(lambda x, y: torch.einsum(equation, x, y))(*tensors)


def _abs(z: ComplexPair) -> Tensor:
    return torch.sqrt(z.re * z.re + z.im * z.im)


def _angle(z: ComplexPair) -> Tensor:
    return torch.atan2(z.im, z.re)


def _polar(size: Tensor, angle: Tensor) -> ComplexPair:
    return ComplexPair(size * torch.cos(angle), size * torch.sin(angle))


def _power(z: ComplexPair, exponent: Any) -> Any:
    if isinstance(exponent, int) and 1 <= exponent <= 8:
        made = z
        for _ in range(exponent - 1):
            made = _mul(made, z)
        return made
    if isinstance(exponent, complex) or not isinstance(exponent, int | float):
        return NotImplemented
    return _polar(_abs(z) ** exponent, _angle(z) * exponent)


def _sign(z: ComplexPair) -> ComplexPair:
    """In its direction, of length 1; nothing of nothing."""
    size = _abs(z)
    safe = torch.where(size == 0, torch.ones_like(size), size)
    return ComplexPair(z.re / safe, z.im / safe)


def _cast(x: Any, dtype: Any = None, *args: Any, **named: Any) -> Any:
    dtype = named.get("dtype", dtype)
    if isinstance(dtype, torch.dtype) and dtype.is_complex:
        return complex_pair(x if isinstance(x, ComplexPair) else x.to(torch.float32))
    return NotImplemented


def _filled(operator: Any) -> Callable[..., Any]:
    """What makes a tensor like another: a number in one part, zeros in the other."""

    def rule(z: ComplexPair, *args: Any, **named: Any) -> Any:
        if named.get("dtype") is not None and not named["dtype"].is_complex:
            return NotImplemented
        return ComplexPair(operator(z.re), torch.zeros_like(z.re))

    return rule


def _where(condition: Tensor, x: Any, y: Any) -> ComplexPair:
    pairs = zip(complex_pair(x), complex_pair(y), strict=True)
    return ComplexPair(*(torch.where(condition, a, b) for a, b in pairs))


#: What does the same to both parts.
_BY_PARTS = tuple(
    "_unsafe_view alias cat chunk clone contiguous cumsum detach diagonal expand fft_fftshift "
    "fft_ifftshift flatten flip gather index index_select mean movedim mT narrow "
    "constant_pad_nd permute repeat reshape roll select slice split split_with_sizes squeeze "
    "stack sum swapaxes t transpose tril triu unbind unflatten unfold unsqueeze view".split()
)

#: Rules by operator, of tensors, numbers and `ComplexPair`; `NotImplemented` leaves it as it is.
COMPLEX_RULES: dict[Any, Callable[..., Any]] = {
    **{
        overload: by_parts(overload)
        for packet in (getattr(_ATEN, name) for name in _BY_PARTS if hasattr(_ATEN, name))
        for overload in (getattr(packet, each) for each in packet.overloads())
    },
    **FFT_RULES,
    _ATEN.view_as_complex.default: lambda x: ComplexPair(x.select(-1, 0), x.select(-1, 1)),
    _ATEN.view_as_real.default: lambda z: torch.stack([z.re, z.im], -1),
    _ATEN.complex.default: ComplexPair,
    _ATEN.polar.default: _polar,
    _ATEN.real.default: lambda z: z.re,
    _ATEN.imag.default: lambda z: z.im,
    _ATEN.abs.default: _abs,
    _ATEN.angle.default: _angle,
    _ATEN._conj.default: lambda z: ComplexPair(z.re, -z.im),
    _ATEN.conj.default: lambda z: ComplexPair(z.re, -z.im),
    _ATEN.conj_physical.default: lambda z: ComplexPair(z.re, -z.im),
    _ATEN.resolve_conj.default: lambda z: z,
    _ATEN.resolve_neg.default: lambda z: z,
    _ATEN.neg.default: _neg,
    _ATEN.add.Tensor: _add,
    _ATEN.add.Scalar: _add,
    _ATEN.sub.Tensor: _sub,
    _ATEN.sub.Scalar: _sub,
    _ATEN.rsub.Scalar: _rsub,
    _ATEN.rsub.Tensor: _rsub,
    _ATEN.mul.Tensor: _mul,
    _ATEN.mul.Scalar: _mul,
    _ATEN.div.Tensor: _div,
    _ATEN.div.Scalar: _div,
    _ATEN.reciprocal.default: _reciprocal,
    _ATEN.square.default: lambda z: _mul(z, z),
    _ATEN.pow.Tensor_Scalar: _power,
    _ATEN.exp.default: lambda z: _polar(torch.exp(z.re), z.im),
    _ATEN.log.default: lambda z: ComplexPair(torch.log(_abs(z)), _angle(z)),
    _ATEN.sqrt.default: lambda z: _power(z, 0.5),
    _ATEN.sgn.default: _sign,
    _ATEN.matmul.default: _bilinear_rule(torch.matmul),
    _ATEN.bmm.default: _bilinear_rule(torch.bmm),
    _ATEN.mm.default: _bilinear_rule(torch.mm),
    _ATEN.einsum.default: _einsum,
    _ATEN.where.self: _where,
    _ATEN.where.ScalarOther: _where,
    _ATEN.where.ScalarSelf: _where,
    _ATEN.to.dtype: _cast,
    _ATEN._to_copy.default: _cast,
    _ATEN.zeros_like.default: _filled(torch.zeros_like),
    _ATEN.ones_like.default: _filled(torch.ones_like),
}
