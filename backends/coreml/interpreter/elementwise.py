"""Elementwise ops: arithmetic, comparison, logic, activations, casts; and a classifier's label.

Two operands broadcast as in numpy: shapes are aligned at the right, axes of size 1 are
stretched. Both have one type, so nothing is promoted. Where a result cannot be an integer (a
mean, a quotient) the op keeps its integer type in Core ML, and the fraction is cut off.

Comparison and logic are broadcast, and every result is boolean. A comparison with NaN is false,
but for ``not_equal``.

``alpha`` and ``beta`` of activations are constants: scalars, or one value for each channel (axis 1)
where that is said.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel, register_functions
from edgeserve.backends.coreml.interpreter.values import number


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x)


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: function(x, y)


#: Ops of one operand that PyTorch has by the same name. ``round`` takes halves to the even
#: neighbour; outside their domain ``acos``, ``asin``, ``atanh``, ``sqrt`` give NaN; ``sign`` of 0
#: is 0; ``relu`` is ``max(x, 0)``, ``sigmoid`` ``1 / (1 + exp(-x))``.
_UNARY = (
    "abs acos asin atan atanh ceil cos cosh erf exp floor logical_not relu round sigmoid sign sin "
    "sinh sqrt square tan tanh"
).split()

#: Ops of two operands that PyTorch has by the same name; ``maximum`` and ``minimum`` hand NaN on.
#: ``pow`` of integers gives an integer (0 for a negative exponent, but of 1).
_BINARY = (
    "add greater greater_equal less less_equal logical_and logical_or logical_xor maximum minimum "
    "mul not_equal pow sub"
).split()

register_functions({name: _unary(getattr(torch, name)) for name in _UNARY})
register_functions({name: _binary(getattr(torch, name)) for name in _BINARY})
register_functions(
    {
        "equal": _binary(torch.eq),
        # The quotient, rounded towards minus infinity (-7 by 2 is -4).
        "floor_div": _binary(torch.floor_divide),
        # What ``floor_div`` leaves; it has the divisor's sign, as in Python.
        "mod": _binary(torch.remainder),
        # ``x`` held between ``alpha`` and ``beta``, both included.
        "clip": lambda x, alpha, beta: torch.clamp(x, number(alpha), number(beta)),
        # ``x``, but never below ``alpha``; integers too.
        "threshold": lambda x, alpha: torch.maximum(x, alpha),
        # 2 to the power ``x``; integers are exact.
        "exp2": lambda x: torch.exp2(x) if x.is_floating_point() else torch.pow(2, x),
        # ``1 / (x + epsilon)``: added whatever the sign of ``x``, so -epsilon is a pole.
        "inverse": lambda x, epsilon=1e-4: torch.reciprocal(x + number(epsilon)),
        # ``ln(x + epsilon)``; the default keeps 0 finite in float32 and is 0 in float16.
        "log": lambda x, epsilon=1e-45: torch.log(x + number(epsilon)),
        # ``1 / sqrt(x + epsilon)``.
        "rsqrt": lambda x, epsilon=1e-12: torch.rsqrt(x + number(epsilon)),
    }
)


@kernel("real_div")
def real_div(x: Tensor, y: Tensor) -> Tensor:
    """The quotient; that of two integers loses its fraction, as its type is an integer."""
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


register_functions(
    {
        # ``x`` held between 0 and 6.
        "relu6": lambda x: torch.clamp(x, 0.0, 6.0),
        # ``x`` where it is at least 0, else ``alpha * x``.
        "leaky_relu": lambda x, alpha: functional.leaky_relu(x, number(alpha)),
        # A leaky ReLU of slope ``alpha`` below 0, cut at ``beta`` above; the cut holds below 0 too.
        "clamped_relu": lambda x, alpha, beta: functional.leaky_relu(x, number(alpha)).clamp(
            max=number(beta)
        ),
        # A leaky ReLU with its own slope for each channel: ``alpha`` is [C], ``x`` [B, C, ...].
        "prelu": lambda x, alpha: functional.prelu(x, alpha),
        # ``x`` where it is at least ``alpha``, else 0.
        "thresholded_relu": lambda x, alpha: torch.where(x >= alpha, x, x.new_zeros(())),
        # ``x`` above 0, else ``alpha * (exp(x) - 1)``.
        "elu": lambda x, alpha: functional.elu(x, number(alpha)),
        "linear_activation": lambda x, alpha, beta: alpha * x + beta,
        "scaled_tanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
        # The line ``alpha * x + beta``, held between 0 and 1.
        "sigmoid_hard": lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0.0, 1.0),
        # ``x * sigmoid(x)``.
        "silu": lambda x: functional.silu(x),
        # ``x / (1 + |x|)``.
        "softsign": lambda x: functional.softsign(x),
    }
)


@kernel("gelu")
def gelu(x: Tensor, mode: str = "EXACT") -> Tensor:
    """``x`` times the normal distribution function of ``x``, exactly or by one of two formulas.

    Args:
        x: Any shape.
        mode: "EXACT" by erf; "TANH_APPROXIMATION" by tanh of a cubic; "SIGMOID_APPROXIMATION" is
            ``x * sigmoid(1.702 x)``.
    """
    if mode == "SIGMOID_APPROXIMATION":
        return x * torch.sigmoid(1.702 * x)
    return functional.gelu(x, approximate="tanh" if mode == "TANH_APPROXIMATION" else "none")


@kernel("softplus")
def softplus(x: Tensor) -> Tensor:
    """``ln(1 + exp(x))``, in the form that does not overflow."""
    return torch.logaddexp(x, x.new_zeros(()))


@kernel("softplus_parametric")
def softplus_parametric(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``alpha * ln(1 + exp(beta * x))`` with ``alpha`` and ``beta`` [C] for each channel."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    return alpha.reshape(shape) * softplus(beta.reshape(shape) * x)


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
    if dtype in ("int8", "uint8", "int16", "uint16"):  # others need no care
        return torch.from_numpy(whole.numpy().astype(dtype).astype(np.int32))
    return whole


@kernel("classify")
def classify(probabilities: Tensor, classes: list[str | int]) -> tuple[np.ndarray, Tensor]:
    """The class of the largest probability, and all probabilities in the order of the classes."""
    flat = probabilities.reshape(-1)
    return np.asarray(classes[int(flat.argmax())]), flat
