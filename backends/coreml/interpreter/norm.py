"""Normalizations and softmax. ``gamma`` scales the result, ``beta`` is added, where given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Float, Int, integer, ints, number


@kernel("batch_norm")
def batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: Float = 1e-5,
) -> Tensor:
    """Each channel less its stored mean, over the root of its stored variance plus ``epsilon``.

    Args:
        x: [N, C, *spatial], one to three spatial axes.
        mean: [C].
        variance: [C].
        gamma: [C].
        beta: [C].
        epsilon: Keeps the root above 0.
    """
    return functional.batch_norm(x, mean, variance, gamma, beta, eps=number(epsilon))


@kernel("instance_norm")
def instance_norm(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: Float = 1e-5
) -> Tensor:
    """Each channel of each sample by its own mean and (biased) variance over the spatial axes.

    Args:
        x: [N, C, *spatial]; one spatial element gives ``beta``.
        gamma: [C].
        beta: [C].
        epsilon: Keeps the root above 0.
    """
    axes = list(range(2, x.ndim))
    return _scaled(_normal(x, axes, epsilon), gamma, beta, [-1] + [1] * len(axes))


@kernel("softmax")
def softmax(x: Tensor, axis: Int = -1) -> Tensor:
    """Exponentials along ``axis``, divided by their sum."""
    return torch.softmax(x, integer(axis))


@kernel("l2_norm")
def l2_norm(x: Tensor, epsilon: Float = 1e-6) -> Tensor:
    """``x`` over the root of the sum of squares of its last three axes, plus ``epsilon``."""
    squares = x.square().sum((-3, -2, -1), keepdim=True)
    return x / torch.sqrt(squares + number(epsilon))


@kernel("layer_norm")
def layer_norm(
    x: Tensor,
    axes: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: Float = 1e-5,
) -> Tensor:
    """``x`` less its mean over ``axes``, over the root of its biased variance plus ``epsilon``.

    Args:
        x: Any shape.
        axes: Axes to normalize over, anywhere; all where left out.
        gamma: The sizes of ``axes``, in the order of ``x``.
        beta: As ``gamma``.
        epsilon: Keeps the root above 0.
    """
    over = range(x.ndim) if axes is None else ints(axes)
    chosen = sorted(axis % x.ndim for axis in over)
    if chosen == list(range(x.ndim - len(chosen), x.ndim)):
        sizes = x.shape[chosen[0] :]
        return functional.layer_norm(x, sizes, gamma, beta, number(epsilon))
    shape = [x.shape[axis] if axis in chosen else 1 for axis in range(x.ndim)]
    return _scaled(_normal(x, chosen, epsilon), gamma, beta, shape)


@kernel("local_response_norm")
def local_response_norm(
    x: Tensor, size: Tensor, alpha: Float = 1e-4, beta: Float = 0.75, k: Float = 1.0
) -> Tensor:
    """``x / (k + alpha / size * sum of squares of size neighbouring channels) ** beta``.

    The neighbourhood is centred and has an odd number of channels: of an even ``size`` one less is
    summed, though the sum is still divided by ``size``, as the answers in coremltools' own tests
    have it. Channels that are not there count as zeros.
    """
    width = integer(size)
    centred = width - 1 + width % 2
    share = number(alpha) * centred / width
    return functional.local_response_norm(x, centred, share, number(beta), number(k))


def _normal(x: Tensor, axes: list[int], epsilon: Float) -> Tensor:
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + number(epsilon))


def _scaled(x: Tensor, gamma: Tensor | None, beta: Tensor | None, shape: list[int]) -> Tensor:
    x = x if gamma is None else x * gamma.reshape(shape)
    return x if beta is None else x + beta.reshape(shape)
