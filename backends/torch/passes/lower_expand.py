"""Lower expansions: leave them out where operators broadcast, else concatenate copies.

``a * b.expand_as(a)`` is ``a * b``. Some converters move layouts around and forget the sizes
that an expansion names; without it there is nothing to forget.

LiteRT's converter moves a transposition above the expansion before it and writes a reshape in
its place, which leaves the numbers in their old order: the file is wrong and nothing says so. It
takes an expanded tensor of two or more real axes and a transposition, a permutation or a matrix
product (multi-query attention has all of that), or an operator that is decomposed into such, as
sorting along the first axis is. A concatenation is not moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import insert, overloads, replace_each, shape_of

_ATEN = torch.ops.aten
_EXPANSIONS = overloads("broadcast_to expand expand_as")
_ELEMENTWISE = overloads("add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum")


def remove_expand(module: fx.GraphModule) -> bool:
    """Remove expansions read by elementwise operators only, where the result stays as large.

    The graph's values must have fixed sizes (`with_sizes`).
    """

    def lower(node: fx.Node) -> Any:
        redundant = node.users and all(_same_without(user, node) for user in node.users)
        return node.args[0] if redundant else None

    return replace_each(module, _EXPANSIONS, lower)


def _same_without(user: fx.Node, expansion: fx.Node) -> bool:
    """Whether an operator gives the same shape when it reads the expansion's input instead."""
    if user.target not in _ELEMENTWISE:
        return False
    reads = [read.args[0] if read is expansion else read for read in user.all_input_nodes]
    shapes = [shape_of(read) for read in reads if isinstance(read, fx.Node)]
    known = [shape for shape in shapes if shape is not None]
    return len(known) == len(shapes) and np.broadcast_shapes(*known) == shape_of(user)


#: Operators that only see the same numbers in another shape.
_SEE_THROUGH = set(
    "_unsafe_view clone contiguous flatten reshape squeeze to unflatten unsqueeze view".split()
)
#: Operators that read the numbers in their order, besides those that work number by number.
_IN_ORDER = set(
    "all amax amin any argmax argmin cat mean narrow prod select slice softmax stack sum".split()
)


def expand_to_cat(module: fx.GraphModule) -> bool:
    """Replace expansions and repetitions that may reach a transposition or a matrix product.

    The graph's values must have fixed sizes (`with_sizes`).
    """
    copies = _EXPANSIONS | overloads("repeat")
    found = {node for node in module.graph.nodes if node.target in copies and _is_at_risk(node)}
    return replace_each(module, copies, lambda node: _concatenated(node) if node in found else None)


def _is_at_risk(node: fx.Node) -> bool:
    before, after = shape_of(node.args[0]), shape_of(node)
    if before is None or after is None or before == after or 0 in after:
        return False
    return sum(size > 1 for size in before) >= 2 and any(_may_reorder(node))


def _may_reorder(node: fx.Node) -> Iterator[bool]:
    """Whether each reader, or reader of a reshaped value, may turn the numbers around.

    Decompositions and layouts of images bring transpositions with them.
    """
    for user in node.users:
        name = str(user.target).split(".")[1] if "." in str(user.target) else ""
        if name in _SEE_THROUGH:
            yield from _may_reorder(user)
        else:
            by_number = torch.Tag.pointwise in getattr(user.target, "tags", ())
            yield not (by_number or name in _IN_ORDER or user.op == "output")


def _concatenated(node: fx.Node) -> fx.Node:
    """The same numbers as ``node``, by one concatenation for each axis that grows."""
    made: fx.Node = node.args[0]  # type: ignore[assignment]
    before, after = shape_of(made) or (), shape_of(node) or ()
    aligned = (1,) * (len(after) - len(before)) + before
    if aligned != before:
        made = insert(node, _ATEN.reshape.default, made, list(aligned))
    for axis, (small, large) in enumerate(zip(aligned, after, strict=True)):
        if large != small:
            made = insert(node, _ATEN.cat.default, [made] * (large // small), axis)
    return made
