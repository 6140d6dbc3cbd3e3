"""Carry out a grouped transposed convolution group by group.

LiteRT's converter gives wrong numbers, without a word, where each group has one channel. A group on
its own is an ordinary transposed convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["split_groups"]

_ATEN = torch.ops.aten
_TRANSPOSED = {
    _ATEN.conv_transpose1d.default,
    _ATEN.conv_transpose2d.input,
    _ATEN.conv_transpose3d.input,
}


def split_groups(module: fx.GraphModule) -> bool:
    """Replace transposed convolutions of several groups; values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target not in _TRANSPOSED or _groups(node) == 1 or not shape_of(node.args[1]):
            continue
        made = _split(node, _groups(node))
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
        changed = True
    return changed


def _groups(node: fx.Node) -> Any:
    return node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)


def _split(node: fx.Node, groups: int) -> fx.Node:
    given_args: list[Any] = [*node.args, *[None] * max(0, 3 - len(node.args))]
    x, weight, bias, *rest = given_args
    sizes = shape_of(weight) or ()
    taken, given = sizes[0] // groups, sizes[1]
    axis = len(shape_of(x) or ()) - (len(sizes) - 1)
    parts = []
    for group in range(groups):
        piece = (group * taken, (group + 1) * taken)
        own = insert(node, _ATEN.slice.Tensor, x, axis, *piece)
        kernel = insert(node, _ATEN.slice.Tensor, weight, 0, *piece)
        kernel.meta["val"] = weight.meta["val"][: piece[1] - piece[0]]
        shift = None
        if bias is not None:
            shift = insert(node, _ATEN.slice.Tensor, bias, 0, group * given, (group + 1) * given)
        named: list[Any] = [*rest[:3], 1, *rest[4:]] if len(rest) > 3 else list(rest)
        parts.append(insert(node, node.target, own, kernel, shift, *named))
        own.meta["val"] = x.meta["val"].narrow(axis, piece[0], taken)
        parts[-1].meta["val"] = node.meta["val"].narrow(axis, group * given, given)
    return insert(node, _ATEN.cat.default, parts, axis)
