"""Write a pooling that divides by another number as a pooling and a product.

``avg_pool2d(x, 2, divisor_override=3)`` sums four and divides by three. `torch.onnx.export` leaves
the divisor out without a word, and coremltools refuses it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert

__all__ = ["spell_divisor"]

_ATEN = torch.ops.aten
_POOLS = {_ATEN.avg_pool2d.default: 2, _ATEN.avg_pool3d.default: 3}


def spell_divisor(module: fx.GraphModule) -> bool:
    """Replace divisors that are given, where every window is whole (no ``ceil_mode``)."""
    changed = False
    for node in list(module.graph.nodes):
        rank = _POOLS.get(node.target)
        if rank is None or (divisor := _argument(node, 6, "divisor_override")) is None:
            continue
        if not _argument(node, 4, "ceil_mode"):
            _spell(node, rank, divisor)
            changed = True
    return changed


def _argument(node: fx.Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _spell(node: fx.Node, rank: int, divisor: int) -> None:
    kernel: Any = node.args[1]
    whole = math.prod(kernel if len(kernel) == rank else list(kernel) * rank)
    given = [*node.args[2:4], *[[], 0][max(0, len(node.args) - 2) :]]
    pooled = insert(node, node.target, node.args[0], kernel, *given, False, True)
    if "val" in node.meta:
        pooled.meta["val"] = node.meta["val"]
    made = insert(node, _ATEN.mul.Tensor, pooled, whole / divisor)
    if "val" in node.meta:
        made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
