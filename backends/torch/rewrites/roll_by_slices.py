"""Roll a tensor by cutting it and putting the pieces together the other way round.

coremltools rolls by looking every element up (``gather`` with a range); others lack the operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["roll_by_slices"]

_ATEN = torch.ops.aten


def roll_by_slices(module: fx.GraphModule) -> bool:
    """Replace ``roll``; the graph's values must have fixed sizes."""
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=_ATEN.roll.default):
        sizes = shape_of(node)
        if sizes is None:
            continue
        node.replace_all_uses_with(_rolled(node, sizes))
        module.graph.erase_node(node)
        changed = True
    return changed


def _rolled(node: fx.Node, sizes: tuple[int, ...]) -> fx.Node:
    shifts: Any = node.args[1]
    axes: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dims", [])
    made: Any = node.args[0]
    lengths = sizes
    if not axes:  # all elements in one row
        lengths = (torch.Size(sizes).numel(),)
        made, axes = insert(node, _ATEN.reshape.default, made, [-1]), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        length = lengths[axis]
        at = -shift % length if length else 0
        if at:
            back = insert(node, _ATEN.slice.Tensor, made, axis, at, length)
            front = insert(node, _ATEN.slice.Tensor, made, axis, 0, at)
            made = insert(node, _ATEN.cat.default, [back, front], axis)
    if lengths != sizes:
        made = insert(node, _ATEN.reshape.default, made, list(sizes))
    if made is not node.args[0]:
        made.meta["val"] = node.meta["val"]
    return made  # type: ignore[no-any-return]
