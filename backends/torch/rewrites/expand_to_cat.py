"""Replace an expansion that is later turned around by a concatenation of copies.

LiteRT's converter moves a transposition above the expansion before it and writes a reshape in its
place, which leaves the numbers in their old order: the file is wrong and nothing says so. It takes
an expanded tensor of two or more real axes and a transposition, a permutation or a matrix product
(multi-query attention has all of that). A concatenation is not moved.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["expand_to_cat"]

_ATEN = torch.ops.aten
_EXPANSIONS = {_ATEN.broadcast_to.default, _ATEN.expand.default, _ATEN.expand_as.default}
_REPEAT = _ATEN.repeat.default

#: Operators that only see the same numbers in another shape.
_SEE_THROUGH = {
    "_unsafe_view",
    "clone",
    "contiguous",
    "flatten",
    "reshape",
    "squeeze",
    "to",
    "unflatten",
    "unsqueeze",
    "view",
}
_TURNS = {
    "adjoint",
    "baddbmm",
    "bmm",
    "einsum",
    "linear",
    "mT",
    "matmul",
    "mm",
    "movedim",
    "moveaxis",
    "numpy_T",
    "permute",
    "scaled_dot_product_attention",
    "swapaxes",
    "swapdims",
    "t",
    "transpose",
}


def expand_to_cat(module: fx.GraphModule) -> bool:
    """Replace expansions and repetitions that reach a transposition or a matrix product.

    The graph's values must have fixed sizes (`with_sizes`).
    """
    found = [node for node in module.graph.nodes if _is_at_risk(node)]
    for node in found:
        node.replace_all_uses_with(_concatenated(node))
        module.graph.erase_node(node)
    return bool(found)


def _is_at_risk(node: fx.Node) -> bool:
    if node.target not in _EXPANSIONS | {_REPEAT}:
        return False
    before, after = shape_of(node.args[0]), shape_of(node)
    if before is None or after is None or before == after or 0 in after:
        return False
    return sum(size > 1 for size in before) >= 2 and any(_turned(node))


def _turned(node: fx.Node) -> Iterator[bool]:
    """Whether each reader, or reader of a reshaped value, turns the numbers around."""
    for user in node.users:
        name = str(user.target).split(".")[1] if "." in str(user.target) else ""
        yield name in _TURNS
        if name in _SEE_THROUGH:
            yield from _turned(user)


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
    made.meta["val"] = node.meta["val"]
    return made
