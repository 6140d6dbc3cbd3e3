"""Pool by comparing shifted copies, where a format's own pooling cannot.

coremltools has no pooling with gaps, and neither it nor LiteRT's converter says where a maximum
was: the one refuses, the other gives wrong places without a word. One strided slice for each place
of the window holds all that a pooling compares.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert, shape_of

__all__ = ["pool_by_slices"]

_ATEN = torch.ops.aten
_LOWEST = -3e38


def pool_by_slices(module: fx.GraphModule) -> bool:
    """Replace ``max_pool2d`` with dilation or with places; all values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        placed = node.target is _ATEN.max_pool2d_with_indices.default
        if not placed and node.target is not _ATEN.max_pool2d.default:
            continue
        sizes, out = shape_of(node.args[0]), _out(node)
        if sizes is None or out is None or not (placed or _pairs(node)[3] != [1, 1]):
            continue
        _replace(module, node, placed, sizes, out)
        changed = True
    return changed


def _out(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, tuple | list) else value
    return tuple(first.shape) if isinstance(first, torch.Tensor) else None


def _pairs(node: fx.Node) -> tuple[list[int], ...]:
    """Kernel, stride, padding, dilation."""
    given: list[Any] = [*node.args[1:5], *[[], 0, 1][max(0, len(node.args) - 2) :]][:4]
    kernel, stride, padding, dilation = (
        list(each) * (2 // max(len(each), 1)) if isinstance(each, list | tuple) else [each, each]
        for each in given
    )
    return kernel, stride or kernel, padding, dilation


def _replace(
    module: fx.GraphModule,
    node: fx.Node,
    placed: bool,
    sizes: tuple[int, ...],
    out: tuple[int, ...],
) -> None:
    parts, numbers = _parts(node, sizes, out)
    best = parts[0]
    for part in parts[1:]:
        best = insert(node, _ATEN.maximum.default, best, part)
    best.meta["val"] = torch.empty(out, device="meta", dtype=node.args[0].meta["val"].dtype)  # type: ignore[union-attr]
    if not placed:
        node.replace_all_uses_with(best)
        module.graph.erase_node(node)
        return
    places = _places(module, node, parts, numbers)
    places.meta["val"] = torch.empty(out, device="meta", dtype=torch.int64)
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(best if user.args[1] == 0 else places)
            module.graph.erase_node(user)
    module.graph.erase_node(node)


def _parts(
    node: fx.Node, sizes: tuple[int, ...], out: tuple[int, ...]
) -> tuple[list[fx.Node], list[torch.Tensor]]:
    """For each place of the window, what lies there, and the number of that place in the image."""
    kernel, stride, padding, dilation = _pairs(node)
    high = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(out[-2:], stride, kernel, dilation, strict=True)
    ]
    after = [
        max(0, need - size - pad) for need, size, pad in zip(high, sizes[-2:], padding, strict=True)
    ]
    widths = [padding[1], after[1], padding[0], after[0]]
    x: Any = node.args[0]
    padded = insert(node, _ATEN.constant_pad_nd.default, x, widths, _LOWEST) if any(widths) else x
    parts, numbers = [], []
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        part = padded
        rows, columns = i * dilation[0], j * dilation[1]
        for axis, start, n, step in (
            (-2, rows, out[-2], stride[0]),
            (-1, columns, out[-1], stride[1]),
        ):
            end = start + (n - 1) * step + 1
            part = insert(node, _ATEN.slice.Tensor, part, len(sizes) + axis, start, end, step)
        parts.append(part)
        down = torch.arange(out[-2])[:, None] * stride[0] - padding[0] + rows
        across = torch.arange(out[-1]) * stride[1] - padding[1] + columns
        numbers.append(down * sizes[-1] + across)
    return parts, numbers


def _places(
    module: fx.GraphModule, node: fx.Node, parts: list[fx.Node], numbers: list[torch.Tensor]
) -> fx.Node:
    """The number of the first place that holds the maximum."""
    best, places = parts[0], add_tensor(module, "place", numbers[0], node)
    for part, number in zip(parts[1:], numbers[1:], strict=True):
        larger = insert(node, _ATEN.gt.Tensor, part, best)
        here = add_tensor(module, "place", number, node)
        places = insert(node, _ATEN.where.self, larger, here, places)
        best = insert(node, _ATEN.where.self, larger, part, best)
    return places
