"""Networks that tests of several folders take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["Calling", "Hot"]


class Calling(nn.Module):
    """Any function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Hot(nn.Module):
    """Inner values of 1e5 made by smaller factors, and outputs near one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.out = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        big = torch.relu(self.inner(x)) * 400 * 250
        return self.out((big + big.flip(-1)) * 1e-5)
