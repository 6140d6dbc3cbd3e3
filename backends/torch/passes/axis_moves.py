"""Put operators in the place of others that work on the same numbers in other axes.

The helpers reshape, permute and expand a tensor a few axes at a time, and let readers of a node
read what replaces it in the node's own sizes.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import arguments_of, insert, shape_of

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


def expanded(at: fx.Node, x: Any, sizes: Sequence[int]) -> fx.Node:
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


def substitute(node: fx.Node, made: Any) -> bool:
    """Let ``made`` take a node's place, in the node's sizes."""
    final = reshaped(node, made, sizes_of(node))
    final.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(final)
    return True


def call_again(
    node: fx.Node, operands: Mapping[fx.Node, fx.Node] = MappingProxyType({}), **named: Any
) -> fx.Node:
    """The same operator on other operands; ``named`` replaces arguments by name."""
    names = list(arguments_of(node))
    args = list(fx.map_arg(node.args, lambda each: operands.get(each, each)))
    kwargs = dict(fx.map_arg(node.kwargs, lambda each: operands.get(each, each)))
    for name, value in named.items():
        place = names.index(name)
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value
    return insert(node, node.target, *args, **kwargs)


def hand_on(node: fx.Node, made: fx.Node) -> bool:
    """Put ``made`` in a node's place, also where it has several results."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return substitute(node, made)
    for user in list(node.users):
        if user.target is not operator.getitem:
            return False
        with user.graph.inserting_before(user):
            part = user.graph.call_function(operator.getitem, (made, user.args[1]))
        part.meta = {key: value for key, value in user.meta.items() if key != "val"}
        substitute(user, part)
        user.graph.erase_node(user)
    return True
