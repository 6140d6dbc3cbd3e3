"""Write adaptive pooling as what it does: cut an axis into pieces, and reduce each.

The pieces of an axis of n for an output of m are those from i * n / m to (i + 1) * n / m, rounded
outwards. Formats have this for two axes at best, and only where m divides n.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["pool_adaptively"]

_ATEN = torch.ops.aten
_MAXIMA = {_ATEN.adaptive_max_pool2d.default: 2, _ATEN.adaptive_max_pool3d.default: 3}
_MEANS = {_ATEN.adaptive_avg_pool3d.default: 3}


def pool_adaptively(module: fx.GraphModule) -> bool:
    """Replace adaptive maxima whose places nobody reads, and means of three axes.

    All values must have fixed sizes.
    """
    changed = False
    for node in list(module.graph.nodes):
        rank = _MAXIMA.get(node.target) or _MEANS.get(node.target)
        sizes = shape_of(node.args[0]) if rank else None
        if rank is None or sizes is None or not _only_values(node):
            continue
        made = _pooled(node, sizes, rank, "amax" if node.target in _MAXIMA else "mean")
        for user in list(node.users) if node.target in _MAXIMA else [node]:
            made.meta["val"] = user.meta["val"]
            user.replace_all_uses_with(made)
            module.graph.erase_node(user)
        if node.target in _MAXIMA:
            module.graph.erase_node(node)
        changed = True
    return changed


def _only_values(node: fx.Node) -> bool:
    if node.target in _MEANS:
        return True
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def _pooled(node: fx.Node, sizes: tuple[int, ...], rank: int, kind: str) -> fx.Node:
    reduce = _ATEN.amax.default if kind == "amax" else _ATEN.mean.dim
    made: Any = node.args[0]
    wanted: Any = node.args[1]
    for place, size in enumerate(list(wanted) * (rank // len(wanted))):
        axis = len(sizes) - rank + place
        parts = [
            insert(node, reduce, insert(node, _ATEN.slice.Tensor, made, axis, *piece), [axis], True)
            for piece in _pieces(sizes[axis], size)
        ]
        made = parts[0] if len(parts) == 1 else insert(node, _ATEN.cat.default, parts, axis)
    return made  # type: ignore[no-any-return]


def _pieces(n: int, m: int) -> Iterator[tuple[int, int]]:
    for i in range(m):
        yield i * n // m, -(-(i + 1) * n // m)
