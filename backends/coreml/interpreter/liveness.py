"""When each value of a plan dies, and how much is alive at most."""

from __future__ import annotations

import math

from edgeserve.backends.coreml.interpreter.steps import Block, Output

__all__ = ["bury", "peak"]


def bury(block: Block, keep: set[int]) -> set[int]:
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
            read |= bury(inner, keep)
        touched = read | {out.slot for out in step.outputs}
        step.dead = tuple(sorted((touched & made) - alive))
        alive |= read
        read_anywhere |= read
    return read_anywhere


def peak(block: Block, alive: int = 0) -> int:
    """Elements alive at most while a block runs, as far as shapes are fixed; see `bury`."""
    sizes: dict[int, int] = {}
    most = alive
    for step in block.steps:
        for inner in step.blocks:
            most = max(most, peak(inner, alive))
        for out in step.outputs:
            sizes[out.slot] = _elements(out)
            alive += sizes[out.slot]
        most = max(most, alive)
        alive -= sum(sizes.pop(slot, 0) for slot in step.dead)
    return most


def _elements(out: Output) -> int:
    return math.prod(out.shape) if out.shape is not None else 0
