"""What a plan is made of: steps over numbered slots, blocks of steps, known values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["MAX_ELEMENTS", "MAX_LIVE", "Block", "Constant", "Output", "Plan", "Step"]

#: The most elements that one tensor of a program may have (2 GiB in float32).
MAX_ELEMENTS = 1 << 29
#: The most elements of all tensors that are alive at the same time, constants aside.
MAX_LIVE = 1 << 31


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is known at load: a tensor, a string or a list of strings."""

    value: Any


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a step.

    Attributes:
        slot: Where it goes.
        name: The program's name of it.
        dtype: What holds it; None for lists and strings.
        rounded: Whether it must be rounded: the program types it float16 and this op can give
            values that are none.
        shape: Its shape where the program fixes all of it.
        half: Whether the program types it float16.
    """

    slot: int
    name: str
    dtype: torch.dtype | None
    rounded: bool
    shape: tuple[int, ...] | None
    half: bool = False


@dataclass(slots=True)
class Step:
    """One op, ready to run: ``function(**constants, **{name: frame[slot]})``.

    Attributes:
        lists: Inputs that are lists: for each item a slot, or a `Constant`.
        dead: Slots that nobody reads after this step.
    """

    op: Any
    op_type: str
    name: str
    function: Callable[..., Any]
    constants: dict[str, Any]
    arguments: tuple[tuple[str, int], ...]
    lists: tuple[tuple[str, tuple[int | Constant, ...]], ...]
    outputs: tuple[Output, ...]
    blocks: tuple[Block, ...]
    wants_block: bool
    dead: tuple[int, ...] = ()


@dataclass(slots=True)
class Block:
    """Steps in order; a nested block shares the frame of its function.

    Attributes:
        inputs: Slots that the block's own inputs go to.
        results: What the block gives.
    """

    inputs: tuple[int, ...]
    steps: list[Step]
    results: tuple[int | Constant, ...]


@dataclass(slots=True)
class Plan:
    """A whole function.

    Attributes:
        size: Number of slots.
        inputs: Slot and `Output` of each input by name (states too).
        results: Slot or constant of each output, by name, in the function's order.
        names: Slots of the values that can be tapped, by name: those of the outer block.
    """

    size: int
    inputs: dict[str, Output]
    block: Block
    results: dict[str, int | Constant]
    names: dict[str, int | Constant] = field(default_factory=dict)
