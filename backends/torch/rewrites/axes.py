"""The same numbers with fewer axes: reshapes, permutations and expansions of few axes at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["around", "expanded", "grouped", "permuted", "reshaped", "sizes_of"]

_ATEN = torch.ops.aten


def sizes_of(node: Any) -> tuple[int, ...]:
    """Sizes of a node's tensor, which must be fixed."""
    sizes = shape_of(node)
    if sizes is None:
        raise ValueError(f"{node} has no fixed sizes")
    return sizes


def reshaped(at: fx.Node, x: fx.Node, sizes: Sequence[int]) -> fx.Node:
    """``x`` in other sizes, by an operator before ``at``; its value is known again."""
    if list(sizes) == [-1]:
        sizes = [math.prod(sizes_of(x))]
    made = insert(at, _ATEN.reshape.default, x, list(sizes))
    if isinstance(x.meta.get("val"), torch.Tensor):
        made.meta["val"] = x.meta["val"].new_empty(list(sizes), device="meta")
    return made


def around(sizes: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Sizes before an axis, of it, and behind it, each as one number."""
    axis %= max(len(sizes), 1)
    return math.prod(sizes[:axis]), sizes[axis], math.prod(sizes[axis + 1 :])


def grouped(patterns: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Runs of neighbouring axes of the same pattern: the pattern and the axes' numbers."""
    runs = itertools.groupby(range(len(patterns)), key=lambda axis: patterns[axis])
    return [(pattern, list(axes)) for pattern, axes in runs]


def expanded(at: fx.Node, x: fx.Node, sizes: Sequence[int]) -> fx.Node:
    """``x`` expanded to sizes, one axis after the other, in three axes each time."""
    before = sizes_of(x)
    now = [1] * (len(sizes) - len(before)) + list(before)
    made = x
    for axis, size in enumerate(sizes):
        if now[axis] != size:
            front, _, back = around(now, axis)
            low = reshaped(at, made, [front, 1, back])
            made = insert(at, _ATEN.expand.default, low, [front, size, back])
            made.meta["val"] = x.meta["val"].new_empty([front, size, back], device="meta")
            now[axis] = size
    return reshaped(at, made, sizes)


def permuted(at: fx.Node, x: fx.Node, order: Sequence[int], most: int) -> fx.Node:
    """``x`` with its axes in another order, by permutations of at most ``most`` axes (4 or more).

    Axes of size 1 play no part, and axes that stay neighbours count as one. What is still too much
    is done in steps, each of which lets two neighbouring blocks change places.
    """
    sizes = sizes_of(x)
    rank = len(sizes)
    order = [axis % rank for axis in order]
    blocks = _blocks([axis for axis in order if sizes[axis] != 1], sizes)
    now, wanted = sorted(blocks), blocks
    lengths = {block: math.prod(sizes[axis] for axis in block) for block in blocks}
    made = x
    if len(blocks) <= most:
        made = reshaped(at, made, [lengths[block] for block in now])
        made = _permute(at, made, [now.index(block) for block in wanted])
    else:
        for first, last in _swaps(now, wanted):
            parts = (now[:first], now[first:last], now[last : last + 1], now[last + 1 :])
            made = reshaped(at, made, [math.prod(lengths[b] for b in part) for part in parts])
            made = _permute(at, made, [0, 2, 1, 3])
            now[first : last + 1] = [*parts[2], *parts[1]]
    return reshaped(at, made, [sizes[axis] for axis in order])


def _permute(at: fx.Node, x: fx.Node, order: list[int]) -> fx.Node:
    made = insert(at, _ATEN.permute.default, x, order)
    sizes = sizes_of(x)
    made.meta["val"] = x.meta["val"].new_empty([sizes[axis] for axis in order], device="meta")
    return made


def _blocks(order: list[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes that follow each other before and after as one block; of those that are not 1."""
    real = [axis for axis in range(len(sizes)) if sizes[axis] != 1]
    follower = dict(itertools.pairwise(real))
    blocks: list[tuple[int, ...]] = []
    for axis in order:
        if blocks and follower.get(blocks[-1][-1]) == axis:
            blocks[-1] = (*blocks[-1], axis)
        else:
            blocks.append((axis,))
    return blocks


def _swaps(now: list[tuple[int, ...]], wanted: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Steps that turn one order into the other: the block at ``last`` moves to ``first``.

    The caller carries each step out on ``now`` before it asks for the next.
    """
    for first, block in enumerate(wanted):
        last = now.index(block)
        if last != first:
            yield first, last
