"""Elementwise ops: arithmetic, comparison, logic, casts; and a classifier's label.

Two operands broadcast as in numpy: shapes are aligned at the right, axes of size 1 are
stretched. Both have one type, so nothing is promoted. Where a result cannot be an integer (a
mean, a quotient) the op keeps its integer type in Core ML, and the fraction is cut off.

Comparison and logic are broadcast, and every result is boolean. A comparison with NaN is false,
but for ``not_equal``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import number

#: Ops of one operand that are just a function. ``round`` takes halves to the even neighbour;
#: outside their domain ``acos``, ``asin``, ``atanh``, ``sqrt`` give NaN; ``sign`` of 0 is 0.
_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "exp": torch.exp,
    "floor": torch.floor,
    "round": torch.round,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
}

#: Ops of two operands that are just a function; ``maximum`` and ``minimum`` hand NaN on.
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "sub": torch.sub,
}


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        return function(x)

    return compute


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y)

    return compute


for _name, _one in _UNARY.items():
    kernel(_name)(_unary(_one))
for _name, _two in _BINARY.items():
    kernel(_name)(_binary(_two))


@kernel("floor_div")
def floor_div(x: Tensor, y: Tensor) -> Tensor:
    """The quotient, rounded towards minus infinity (-7 by 2 is -4)."""
    return torch.floor_divide(x, y)


@kernel("mod")
def mod(x: Tensor, y: Tensor) -> Tensor:
    """What `floor_div` leaves; it has the divisor's sign, as in Python."""
    return torch.remainder(x, y)


@kernel("pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    """``x`` to the power ``y``; of integers an integer (a negative exponent gives 0, but for 1)."""
    return torch.pow(x, y)


@kernel("real_div")
def real_div(x: Tensor, y: Tensor) -> Tensor:
    """The quotient; that of two integers loses its fraction, as its type is an integer."""
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


@kernel("exp2")
def exp2(x: Tensor) -> Tensor:
    """2 to the power ``x``; integers are exact."""
    return torch.exp2(x) if x.is_floating_point() else torch.pow(2, x)


@kernel("clip")
def clip(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``x`` held between ``alpha`` and ``beta``, both included."""
    return torch.clamp(x, number(alpha), number(beta))


@kernel("threshold")
def threshold(x: Tensor, alpha: Tensor) -> Tensor:
    """``x``, but never below ``alpha``; integers too."""
    return torch.maximum(x, alpha)


@kernel("inverse")
def inverse(x: Tensor, epsilon: Tensor | float = 1e-4) -> Tensor:
    """``1 / (x + epsilon)``: epsilon is added whatever the sign of ``x``, so -epsilon is a pole."""
    return torch.reciprocal(x + number(epsilon))


@kernel("log")
def log(x: Tensor, epsilon: Tensor | float = 1e-45) -> Tensor:
    """``ln(x + epsilon)``; the default keeps 0 finite in float32 and is 0 in float16."""
    return torch.log(x + number(epsilon))


@kernel("rsqrt")
def rsqrt(x: Tensor, epsilon: Tensor | float = 1e-12) -> Tensor:
    """``1 / sqrt(x + epsilon)``."""
    return torch.rsqrt(x + number(epsilon))


_COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
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


def _comparison(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y)

    return compute


for _name, _function in _COMPARISONS.items():
    kernel(_name)(_comparison(_function))


@kernel("logical_not")
def logical_not(x: Tensor) -> Tensor:
    """True where ``x`` is false."""
    return torch.logical_not(x)


#: Integer types of the program by bits and sign; the others need no care here.
_BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}


@kernel("cast")
def cast(x: Tensor, dtype: str) -> Tensor:
    """Convert to another type; the executor rounds to float16 where the program says so.

    A float becomes an integer by dropping its fraction. What an integer type cannot hold is
    undefined by contract; here narrow types keep the low bits, as two's complement does.
    """
    if dtype == "bool":
        return x != 0
    if dtype in ("fp16", "fp32", "fp64"):
        return x.to(torch.float32)
    whole = x.to(torch.int64 if not x.is_floating_point() else torch.int32)
    if dtype in _BITS:
        return torch.from_numpy(whole.numpy().astype(dtype).astype(np.int32))
    return whole


@kernel("classify")
def classify(probabilities: Tensor, classes: list[str | int]) -> tuple[np.ndarray, Tensor]:
    """The class of the largest probability, and all probabilities in the order of the classes."""
    flat = probabilities.reshape(-1)
    return np.asarray(classes[int(flat.argmax())]), flat
