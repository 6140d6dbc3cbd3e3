"""Activations.

``alpha`` and ``beta`` are constants: scalars, or one value for each channel (axis 1) where that is
said.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import integer, number


@kernel("relu")
def relu(x: Tensor) -> Tensor:
    """``max(x, 0)``."""
    return torch.relu(x)


@kernel("relu6")
def relu6(x: Tensor) -> Tensor:
    """``x`` held between 0 and 6."""
    return torch.clamp(x, 0.0, 6.0)


@kernel("clamped_relu")
def clamped_relu(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """A leaky ReLU of slope ``alpha`` below 0, cut at ``beta`` above; the cut holds below 0 too."""
    return functional.leaky_relu(x, number(alpha)).clamp(max=number(beta))


@kernel("leaky_relu")
def leaky_relu(x: Tensor, alpha: Tensor) -> Tensor:
    """``x`` where it is at least 0, else ``alpha * x``."""
    return functional.leaky_relu(x, number(alpha))


@kernel("prelu")
def prelu(x: Tensor, alpha: Tensor) -> Tensor:
    """A leaky ReLU with its own slope for each channel: ``alpha`` is [C], ``x`` [B, C, ...]."""
    return functional.prelu(x, alpha)


@kernel("thresholded_relu")
def thresholded_relu(x: Tensor, alpha: Tensor) -> Tensor:
    """``x`` where it is at least ``alpha``, else 0."""
    return torch.where(x >= alpha, x, x.new_zeros(()))


@kernel("elu")
def elu(x: Tensor, alpha: Tensor) -> Tensor:
    """``x`` above 0, else ``alpha * (exp(x) - 1)``."""
    return functional.elu(x, number(alpha))


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


@kernel("linear_activation")
def linear_activation(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``alpha * x + beta``."""
    return alpha * x + beta


@kernel("scaled_tanh")
def scaled_tanh(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``alpha * tanh(beta * x)``."""
    return alpha * torch.tanh(beta * x)


@kernel("sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return torch.sigmoid(x)


@kernel("sigmoid_hard")
def sigmoid_hard(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """The line ``alpha * x + beta``, held between 0 and 1."""
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@kernel("silu")
def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``."""
    return functional.silu(x)


@kernel("softplus")
def softplus(x: Tensor) -> Tensor:
    """``ln(1 + exp(x))``, in the form that does not overflow."""
    return torch.logaddexp(x, x.new_zeros(()))


@kernel("softplus_parametric")
def softplus_parametric(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``alpha * ln(1 + exp(beta * x))`` with ``alpha`` and ``beta`` [C] for each channel."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    return alpha.reshape(shape) * softplus(beta.reshape(shape) * x)


@kernel("softsign")
def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return functional.softsign(x)


@kernel("softmax")
def softmax(x: Tensor, axis: Tensor | int = -1) -> Tensor:
    """Exponentials along ``axis``, divided by their sum."""
    return torch.softmax(x, integer(axis))
