"""A complex tensor as two real ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Pair", "pair_of"]


class Pair(NamedTuple):
    """Real and imaginary part, of one shape."""

    re: Tensor
    im: Tensor


def pair_of(value: Any) -> Pair:
    """A tensor or a number as a pair; real ones have no imaginary part."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, Tensor):
        return Pair(value, torch.zeros_like(value))
    number = complex(value)
    return Pair(torch.tensor(number.real), torch.tensor(number.imag))
