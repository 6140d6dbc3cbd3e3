"""Random tensors, where the program fixes a seed.

The same seed gives the same numbers in every run, on every machine, but not Apple's numbers: its
generator is not documented. What is random in a program can so be compared in its distribution
only. Without a seed (-1) a program answers differently each time and cannot be compared at all;
that is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.plan_nodes import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Float, Int, integer, ints, number
from edgeserve.errors import MilError


@kernel("random_uniform")
def random_uniform(
    shape: Tensor, low: Float = 0.0, high: Float = 1.0, seed: Int = -1, op: Any = None
) -> Tensor:
    """Evenly distributed from ``low`` up to, without, ``high``."""
    start = number(low)
    return start + (number(high) - start) * _uniform(_sizes(shape), seed, op)


@kernel("random_normal")
def random_normal(
    shape: Tensor, mean: Float = 0.0, stddev: Float = 1.0, seed: Int = -1, op: Any = None
) -> Tensor:
    """Normally distributed."""
    noise = torch.randn(_sizes(shape), generator=_generator(seed, op))
    return number(mean) + number(stddev) * noise


@kernel("random_bernoulli")
def random_bernoulli(shape: Tensor, prob: Float = 0.5, seed: Int = -1, op: Any = None) -> Tensor:
    """1 with probability ``prob``, else 0."""
    return (_uniform(_sizes(shape), seed, op) < number(prob)).float()


@kernel("random_categorical")
def random_categorical(
    x: Tensor, mode: str = "logits", size: Int = 1, seed: Int = -1, op: Any = None
) -> Tensor:
    """Indices drawn from distributions, each drawn index put back.

    Args:
        x: [..., K]: for each distribution K logits, or K weights where ``mode`` is "probs".
        mode: "logits" or "probs".
        size: How many are drawn from each.
        seed: Of the generator.
        op: The operation, for errors.

    Returns:
        [..., size], indices as floats.
    """
    weights = x if mode == "probs" else torch.softmax(x, -1)
    flat = weights.reshape(-1, x.shape[-1])
    check_shape([len(flat), integer(size)], "the result of a random op")
    drawn = torch.multinomial(flat, integer(size), True, generator=_generator(seed, op))
    return drawn.reshape(*x.shape[:-1], -1).float()


def _sizes(shape: Tensor) -> list[int]:
    sizes = ints(shape)
    check_shape(sizes, "the result of a random op")
    return sizes


def _uniform(shape: list[int], seed: Int, op: Any) -> Tensor:
    return torch.rand(shape, generator=_generator(seed, op))


def _generator(seed: Int, op: Any) -> torch.Generator:
    """A fresh generator.

    Raises:
        MilError: EDGE-MIL-031, the op has no seed.
    """
    value = integer(seed)
    if value == -1:
        name, kind = getattr(op, "name", ""), getattr(op, "op_type", "random")
        got = "none (-1)"
        hint = "give the op a seed, or feed the noise to the model as an input"
        raise MilError("EDGE-MIL-031", f"op {name!r} ({kind})", wanted="a seed", got=got, hint=hint)
    return torch.Generator().manual_seed(value)
