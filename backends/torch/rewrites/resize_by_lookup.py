"""Resize to the nearest element by looking each one up.

Which element is nearest depends on where a format takes the middle of an element to be, and on how
it rounds: LiteRT's converter gives others than PyTorch, without a word, where the new size is no
multiple of the old one. Here PyTorch says which elements it takes, once and for all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert, shape_of

__all__ = ["resize_by_lookup"]

_ATEN = torch.ops.aten
_RESIZES = {
    getattr(getattr(_ATEN, f"{kind}{rank}d"), overload): rank
    for kind in ("upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
    for overload in ("vec", "default")
}


def resize_by_lookup(module: fx.GraphModule) -> bool:
    """Replace resizing to the nearest where a size is no multiple of the old one.

    All values must have fixed sizes.
    """
    changed = False
    for node in list(module.graph.nodes):
        rank = _RESIZES.get(node.target)
        before, after = (shape_of(node.args[0]), shape_of(node)) if rank else (None, None)
        if rank is None or before is None or after is None or _is_multiple(before, after):
            continue
        made: Any = node.args[0]
        for axis in range(len(before) - rank, len(before)):
            index = add_tensor(module, "nearest", _places(node, before, axis), node)
            made = insert(node, _ATEN.index_select.default, made, axis, index)
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
        changed = True
    return changed


def _is_multiple(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return all(new % old == 0 for old, new in zip(before, after, strict=True))


def _places(node: fx.Node, before: tuple[int, ...], axis: int) -> torch.Tensor:
    """Which elements of an axis the operator takes: its answer to their numbers."""
    shape = [1] * len(before)
    shape[axis] = before[axis]
    numbers = torch.arange(before[axis], dtype=torch.float64).reshape(shape)
    image = numbers.expand(1, 1, *before[2:]).contiguous()
    found: torch.Tensor = node.target(image, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    row = found[tuple(slice(None) if i == axis else 0 for i in range(len(before)))]
    return row.to(torch.int64)
