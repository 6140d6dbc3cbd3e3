"""Lower pooling: divisors, adaptive pooling, and maxima with gaps or places.

``avg_pool2d(x, 2, divisor_override=3)`` sums four and divides by three. `torch.onnx.export`
leaves the divisor out without a word, and coremltools refuses it: it becomes a pooling and a
product.

Adaptive pooling cuts an axis into pieces and reduces each. The pieces of an axis of n for an
output of m are those from i * n / m to (i + 1) * n / m, rounded outwards. Formats have this for
two axes at best, and only where m divides n.

coremltools has no pooling with gaps, and neither it nor LiteRT's converter says where a maximum
was: the one refuses, the other gives wrong places without a word. One strided slice for each
place of the window holds all that a pooling compares.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import add_tensor, arguments_of, insert, shape_of

_ATEN = torch.ops.aten
_POOLS = {_ATEN.avg_pool2d.default: 2, _ATEN.avg_pool3d.default: 3}


def lower_divisor(module: fx.GraphModule) -> bool:
    """Replace divisors that are given, where every window is whole (no ``ceil_mode``)."""
    changed = False
    for node in list(module.graph.nodes):
        rank = _POOLS.get(node.target)
        if rank is None or (divisor := arguments_of(node).get("divisor_override")) is None:
            continue
        if not arguments_of(node).get("ceil_mode"):
            _scale_pool(node, rank, divisor)
            changed = True
    return changed


def _scale_pool(node: fx.Node, rank: int, divisor: int) -> None:
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


_MAXIMA = {_ATEN.adaptive_max_pool2d.default: 2, _ATEN.adaptive_max_pool3d.default: 3}
_MEANS = {_ATEN.adaptive_avg_pool3d.default: 3}


def lower_adaptive_pool(module: fx.GraphModule) -> bool:
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
