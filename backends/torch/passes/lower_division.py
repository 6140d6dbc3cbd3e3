"""Lower divisions that round, and remainders, to steps that are exact in every format.

Converters compute ``floor(x / y)`` with a rounded quotient in float32, so that ``1700002799 //
3600`` is one too large and ``1 // 0.1`` is 10, where PyTorch gives 9. They also multiply by ``1 /
y`` instead of dividing by a number, so that ``49 / 49`` is below 1.

Integers: every format has an exact ``//``; truncation corrects it where signs differ. Floats: the
remainder of a division is a float32 number, and ``fmod`` of C finds it without an error. ONNX has
``fmod``; LiteRT and Core ML have the remainder with the divisor's sign, which is the same for
numbers above zero. The quotient follows from it as in PyTorch (``div_floor_floating`` of
``c10/util/generic_math.h``): ``(x - fmod(x, y)) / y``, one less where the signs of remainder and
divisor differ, and rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.passes.fx_utils import (
    arguments_of,
    inline,
    insert,
    is_float,
    overloads,
    replace_each,
)

_ATEN = torch.ops.aten
_QUOTIENTS = overloads("div.Tensor_mode div.Scalar_mode floor_divide floor_divide.Scalar")
_REMAINDERS = overloads("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor")
_FMODS = overloads("fmod.Tensor fmod.Scalar")
_TRUE = overloads("div.Tensor div.Scalar true_divide.Tensor true_divide.Scalar")


def lower_division(module: fx.GraphModule) -> bool:
    """Lower for a format whose float remainder is exact and has the divisor's sign."""
    opened = replace_each(module, _TRUE, lambda node: _true_quotient(module, node))
    return _lower(module, _fmod_by_remainder, None) or opened


def lower_division_by_fmod(module: fx.GraphModule) -> bool:
    """Lower for a format whose float ``fmod`` is exact."""
    return _lower(module, None, _remainder_by_fmod)


def _lower(module: fx.GraphModule, fmod: Any, remainder: Any) -> bool:
    """``fmod`` and ``remainder`` replace those of the format for floats; None keeps them."""
    quotient = functools.partial(_floor_float, fmod or torch.fmod)

    def rule(node: fx.Node) -> Callable[..., Tensor] | None:
        whole = not is_float(node)
        if node.target in _REMAINDERS:
            return None if whole else remainder
        if node.target in _FMODS:
            return _fmod_whole if whole else fmod
        mode = arguments_of(node).get("rounding_mode", "floor")
        if mode == "trunc":
            return _trunc_whole if whole else _trunc_float
        return (torch.floor_divide if whole else quotient) if mode == "floor" else None

    def lower(node: fx.Node) -> fx.Node | None:
        x, y = list(arguments_of(node).values())[:2]
        function = rule(node)
        if function is None and isinstance(x, fx.Node):
            return None
        function = function or torch.remainder
        made: fx.Node = inline(module, node, lambda a, b: function(*_tensors(a, b)), (x, y))
        return made

    return replace_each(module, _QUOTIENTS | _REMAINDERS | _FMODS, lower)


def _tensors(x: Any, y: Any) -> tuple[Tensor, Any]:
    """The operands, the first as a tensor."""
    return (x if isinstance(x, Tensor) else torch.full_like(y, x)), y


def _opposed(x: Tensor, y: Any) -> Tensor:
    """Whether one of two numbers, neither zero, lies below zero and the other above."""
    if isinstance(y, Tensor):
        return torch.logical_xor(x < 0, y < 0)
    return x < 0 if y > 0 else x > 0


def _trunc_whole(x: Tensor, y: Any) -> Tensor:
    below = torch.floor_divide(x, y)
    short = torch.logical_and(below * y != x, _opposed(x, y))
    return below + short.to(x.dtype)


def _fmod_whole(x: Tensor, y: Any) -> Tensor:
    return x - _trunc_whole(x, y) * y


def _fmod_by_remainder(x: Tensor, y: Any) -> Tensor:
    """The remainder of the sizes, with the sign of ``x``."""
    rest = torch.remainder(x.abs(), abs(y))
    return torch.where(x < 0, -rest, rest)


def _remainder_by_fmod(x: Tensor, y: Any) -> Tensor:
    rest = torch.fmod(x, y)
    turned = torch.logical_and(rest != 0, _opposed(rest, y))
    return torch.where(turned, rest + y, rest)


def _floor_float(fmod: Callable[..., Tensor], x: Tensor, y: Any) -> Tensor:
    rest = fmod(x, y)
    divisor = _opaque(x, y)
    whole = (x - rest) / divisor
    turned = torch.logical_and(rest != 0, _opposed(rest, y))
    whole = torch.where(turned, whole - 1, whole)
    floor = torch.floor(whole)
    made = torch.where(whole - floor > 0.5, floor + 1, floor)
    return torch.where(divisor == 0, x / divisor, made)


def _trunc_float(x: Tensor, y: Any) -> Tensor:
    return torch.trunc(x / _opaque(x, y))


def _opaque(x: Tensor, y: Any) -> Tensor:
    """The divisor as a tensor that no converter takes for a constant."""
    if isinstance(y, Tensor):
        return y
    return torch.where(x == x, torch.full_like(x, y), x)


#: Operators after which the last bit of a quotient decides.
_DECIDING = overloads(
    "floor ceil round round.decimals trunc frac eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar "
    "lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor bucketize.Tensor "
    "searchsorted.Tensor"
)
#: Operators that hand the last bit on.
_PASSING = overloads(
    "abs add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar neg clamp "
    "clamp_min clamp_max reshape view unsqueeze squeeze squeeze.dim permute transpose.int expand "
    "clone contiguous"
)
_CASTS = overloads("to.dtype to.dtype_layout _to_copy type_as")


def _true_quotient(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """A quotient by a number with the right last bit, where a decision reads it."""
    x, y = list(arguments_of(node).values())[:2]
    number = y if isinstance(y, int | float) else None
    exact = number is None or not is_float(x) or abs(_mantissa(number)) == 0.5
    if exact or not any(map(_decides, _readers(node))):
        return None
    return insert(node, _ATEN.div.Tensor, x, inline(module, node, _opaque, (x, number)))


def _mantissa(number: float) -> float:
    import math

    return math.frexp(number)[0]


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """What reads a value, directly or through operators that hand it on."""
    seen, rest = {node}, [node]
    while rest:
        for user in rest.pop().users:
            if user not in seen:
                seen.add(user)
                yield user
                if user.target in _PASSING or (user.target in _CASTS and is_float(user)):
                    rest.append(user)


def _decides(node: fx.Node) -> bool:
    if node.target in _CASTS:
        return not is_float(node)
    return node.target in _DECIDING | _QUOTIENTS | _REMAINDERS | _FMODS
