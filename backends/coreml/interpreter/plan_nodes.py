"""What a plan is made of: steps over numbered slots; when values die, how large they may be.

The plan bounds every value whose shape the program fixes, and what is alive at the same time
(`peak_elements`). `check_shape` bounds the rest, padded inputs and results whose shape is
computed: attributes of ten bytes can ask for terabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from edgeserve.errors import MilError

#: The most elements that one tensor of a program may have (2 GiB in float32).
MAX_ELEMENTS = 1 << 29
#: The most elements of all tensors that are alive at the same time, constants aside.
MAX_LIVE = 1 << 31


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is known at load: a tensor, a string or a list of strings."""

    value: Any


@dataclass(frozen=True, slots=True)
class StepOutput:
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
    outputs: tuple[StepOutput, ...]
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
class CompiledFunction:
    """A whole function.

    Attributes:
        size: Number of slots.
        inputs: Slot and `Output` of each input by name (states too).
        results: Slot or constant of each output, by name, in the function's order.
        names: Slots of the values that can be tapped, by name: those of the outer block.
    """

    size: int
    inputs: dict[str, StepOutput]
    block: Block
    results: dict[str, int | Constant]
    names: dict[str, int | Constant] = field(default_factory=dict)


def mark_last_uses(block: Block, keep: set[int]) -> set[int]:
    """Note for each step which slots die with it.

    A nested block may free only what it made itself: what lies outside is read again by the next
    turn of a loop.

    Args:
        block: The block; its steps are changed.
        keep: Slots that are needed after the block.

    Returns:
        All slots that the block reads.
    """
    made = {out.slot for step in block.steps for out in step.outputs} | set(block.inputs)
    alive = keep | {slot for slot in block.results if isinstance(slot, int)}
    read_anywhere = set(alive)
    for step in reversed(block.steps):
        read = {slot for _, slot in step.arguments}
        read |= {item for _, items in step.lists for item in items if isinstance(item, int)}
        for inner in step.blocks:
            read |= mark_last_uses(inner, keep)
        touched = read | {out.slot for out in step.outputs}
        step.dead = tuple(sorted((touched & made) - alive))
        alive |= read
        read_anywhere |= read
    return read_anywhere


def peak_elements(block: Block, alive: int = 0) -> int:
    """The most elements alive while a block runs, where shapes are fixed; see `mark_last_uses`."""
    sizes: dict[int, int] = {}
    most = alive
    for step in block.steps:
        for inner in step.blocks:
            most = max(most, peak_elements(inner, alive))
        for out in step.outputs:
            sizes[out.slot] = math.prod(out.shape) if out.shape is not None else 0
            alive += sizes[out.slot]
        most = max(most, alive)
        alive -= sum(sizes.pop(slot, 0) for slot in step.dead)
    return most


def malformed(package: str, wanted: str, got: str) -> MilError:
    """The error for a program that contradicts itself, or its package's description."""
    hint = "make the package again from its source"
    return MilError("EDGE-MIL-005", f"package {package!r}", wanted=wanted, got=got, hint=hint)


def check_shape(shape: Iterable[int], what: str) -> None:
    """See that a tensor is worth making.

    Args:
        shape: What it would have.
        what: What it is ("a padded input"), for the error.

    Raises:
        MilError: EDGE-MIL-004, a size is negative or the elements are too many.
    """
    sizes = [int(size) for size in shape]
    if min(sizes, default=0) < 0 or math.prod(sizes) > MAX_ELEMENTS:
        wanted = f"at most {MAX_ELEMENTS} elements"
        hint = "make the package again; no phone could hold this tensor"
        raise MilError("EDGE-MIL-004", what, wanted=wanted, got=f"shape {sizes}", hint=hint)
