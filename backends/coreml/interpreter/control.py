"""Branches, loops and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import truth
from edgeserve.errors import MilError

__all__ = ["MAX_TURNS", "cond", "select", "while_loop"]

#: After this many turns a loop is taken for one that never ends.
MAX_TURNS = 1_000_000


@kernel("cond")
def cond(pred: Tensor, run_block: Callable[..., list[Any]]) -> tuple[Any, ...]:
    """Run the first block if ``pred`` is true, else the second."""
    return tuple(run_block(0 if truth(pred) else 1))


@kernel("while_loop")
def while_loop(loop_vars: list[Any], run_block: Callable[..., list[Any]]) -> tuple[Any, ...]:
    """Run the second block on its own results while the first says true."""
    for _ in range(MAX_TURNS):
        (going,) = run_block(0, *loop_vars)
        if not truth(going):
            return tuple(loop_vars)
        loop_vars = run_block(1, *loop_vars)
    raise MilError(
        "EDGE-MIL-011",
        "while_loop",
        wanted=f"an end within {MAX_TURNS} turns",
        got="none",
        hint="check the model's stop condition; it may never hold for this input",
    )


@kernel("select")
def select(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a`` where the condition is true, else ``b``; the three are broadcast."""
    return torch.where(cond, a, b)
