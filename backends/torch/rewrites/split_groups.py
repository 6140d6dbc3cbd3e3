"""Carry out a grouped transposed convolution, or one of three axes, group by group.

LiteRT's converter gives wrong numbers, without a word, where each group of a transposed one has one
channel, and has no groups of three axes. A group on its own is an ordinary convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["split_groups"]

_ATEN = torch.ops.aten
#: Where an operator has its number of groups.
_PLACES: dict[Any, int] = {
    _ATEN.conv3d.default: 6,
    _ATEN.conv3d.padding: 6,
    _ATEN.conv_transpose1d.default: 6,
    _ATEN.conv_transpose2d.input: 6,
    _ATEN.conv_transpose3d.input: 6,
}


def split_groups(module: fx.GraphModule) -> bool:
    """Replace such convolutions of several groups; values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        place = _PLACES.get(node.target)
        if place is None or _groups(node, place) == 1 or not shape_of(node.args[1]):
            continue
        made = _split(node, _groups(node, place), place)
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
        changed = True
    return changed


def _groups(node: fx.Node, place: int) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get("groups", 1)


def _split(node: fx.Node, groups: int, place: int) -> fx.Node:
    """A transposed kernel is [in, out / groups, ...], an ordinary one [out, in / groups, ...]."""
    given_args: list[Any] = [*node.args, *[None] * max(0, 3 - len(node.args))]
    x, weight, bias, *rest = given_args
    if len(rest) > place - 3:
        rest[place - 3] = 1
    sizes = shape_of(weight) or ()
    transposed = "transpose" in str(node.target)
    cut = sizes[0] // groups
    taken, given = (cut, sizes[1]) if transposed else (sizes[1], cut)
    axis = len(shape_of(x) or ()) - (len(sizes) - 1)
    parts = []
    for group in range(groups):
        own = insert(node, _ATEN.slice.Tensor, x, axis, group * taken, (group + 1) * taken)
        kernel = insert(node, _ATEN.slice.Tensor, weight, 0, group * cut, (group + 1) * cut)
        kernel.meta["val"] = weight.meta["val"][:cut]
        shift = None
        if bias is not None:
            shift = insert(node, _ATEN.slice.Tensor, bias, 0, group * given, (group + 1) * given)
        parts.append(insert(node, node.target, own, kernel, shift, *rest))
        own.meta["val"] = x.meta["val"].narrow(axis, group * taken, taken)
        parts[-1].meta["val"] = node.meta["val"].narrow(axis, group * given, given)
    return insert(node, _ATEN.cat.default, parts, axis)
