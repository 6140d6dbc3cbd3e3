"""Write ``as_strided`` without strides.

Taking an operator apart, PyTorch sometimes describes a result by sizes and strides over the memory
of another tensor. What it says is found by laying numbers over both: the same order is a reshape,
anything else a lookup with constant places.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert, shape_of

__all__ = ["relabel_strides"]

_ATEN = torch.ops.aten


def relabel_strides(module: fx.GraphModule) -> bool:
    """Replace ``as_strided`` and ``as_strided_copy``; all values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in (_ATEN.as_strided.default, _ATEN.as_strided_copy.default):
            sizes = shape_of(node.args[0])
            if sizes is not None:
                node.replace_all_uses_with(_relabelled(module, node, sizes))
                module.graph.erase_node(node)
                changed = True
    return changed


def _relabelled(module: fx.GraphModule, node: fx.Node, sizes: tuple[int, ...]) -> fx.Node:
    x: Any = node.args[0]
    places = _places(node, sizes)
    size: Any = node.args[1]
    if places.numel() == torch.Size(sizes).numel() and bool(
        (places.reshape(-1) == torch.arange(places.numel())).all()
    ):
        made = insert(node, _ATEN.reshape.default, x, list(size))
    else:
        row = insert(node, _ATEN.reshape.default, x, [-1])
        index = add_tensor(module, "places", places.reshape(-1), node)
        found = insert(node, _ATEN.index_select.default, row, 0, index)
        made = insert(node, _ATEN.reshape.default, found, list(size))
    made.meta["val"] = node.meta["val"]
    return made


def _places(node: fx.Node, sizes: tuple[int, ...]) -> torch.Tensor:
    """For each element of the result, which element of the input it is, counted row by row."""
    x: Any = node.args[0]
    size: Any = node.args[1]
    stride: Any = node.args[2]
    offset: Any = node.args[3] if len(node.args) > 3 else None
    strides, start = x.meta["val"].stride(), x.meta["val"].storage_offset()
    count = torch.Size(sizes).numel()
    span = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if count else 1
    memory = torch.full((span,), -1, dtype=torch.long)
    memory.as_strided(sizes, strides).copy_(torch.arange(count).reshape(sizes))
    return memory.as_strided(size, stride, (start if offset is None else offset) - start)
