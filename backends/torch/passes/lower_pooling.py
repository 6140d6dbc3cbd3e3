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

import functools
import itertools
import math
import operator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    add_tensor,
    arguments_of,
    insert,
    kept_meta,
    overloads,
    per_axis,
    replace_each,
    shape_of,
)

_ATEN = torch.ops.aten
_Shape = tuple[int, ...]
_POOLS = {_ATEN.avg_pool2d.default: 2, _ATEN.avg_pool3d.default: 3}


def lower_divisor(module: fx.GraphModule) -> bool:
    """Replace divisors that are given, where every window is whole (no ``ceil_mode``)."""
    return replace_each(module, _POOLS, _scaled_pool)


def _scaled_pool(node: fx.Node) -> fx.Node | None:
    x, kernel, stride, padding, ceil, _, divisor = arguments_of(node).values()
    if divisor is None or ceil:
        return None
    rank: int = _POOLS[node.target]  # type: ignore[index]
    whole = math.prod(per_axis(kernel, rank))
    pooled = insert(node, node.target, x, kernel, stride, padding, False, True)
    pooled.meta |= kept_meta(node)
    return insert(node, _ATEN.mul.Tensor, pooled, whole / divisor)


_CEILED = overloads(
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices "
    "max_pool3d_with_indices"
)


def drop_ceil_mode(module: fx.GraphModule) -> bool:
    """Drop ``ceil_mode`` where it changes no size; values must have fixed sizes.

    PyTorch leaves out a last window that would start in the padding, and ONNX counts it.
    """
    found = [node for node in module.graph.nodes if node.target in _CEILED and _rounds_alike(node)]
    for node in found:
        node.args, node.kwargs = tuple((arguments_of(node) | {"ceil_mode": False}).values()), {}
    return bool(found)


def _rounds_alike(node: fx.Node) -> bool:
    given, value, sizes = arguments_of(node), node.meta.get("val"), shape_of(node.args[0])
    if not given["ceil_mode"] or value is None or sizes is None:
        return False
    out = tuple((value if isinstance(value, torch.Tensor) else value[0]).shape)
    kernel = given["kernel_size"]
    rank = int(str(node.target).partition("pool")[2][0])
    how = [kernel, given["stride"] or kernel, given["padding"], given.get("dilation", 1)]
    each = zip(sizes[-rank:], *(per_axis(part, rank) for part in how), strict=True)
    whole = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each)
    return whole == out[-rank:]


_MAXIMA = {_ATEN.adaptive_max_pool2d.default: 2, _ATEN.adaptive_max_pool3d.default: 3}
_MEANS = {_ATEN.adaptive_avg_pool3d.default: 3}


def lower_adaptive_pool(module: fx.GraphModule) -> bool:
    """Replace adaptive maxima whose places nobody reads, and means of three axes.

    All values must have fixed sizes.
    """
    changed = False
    for node in list(module.graph.nodes):
        rank = _MAXIMA.get(node.target) or _MEANS.get(node.target)
        for user in list(node.users) if node.target in _MAXIMA else ():
            if not user.users:  # places that nobody reads
                module.graph.erase_node(user)
        sizes = shape_of(node.args[0]) if rank else None
        if rank is None or sizes is None or not _only_values(node):
            continue
        made = _pooled(node, sizes, rank, "amax" if node.target in _MAXIMA else "mean")
        for user in list(node.users) if node.target in _MAXIMA else [node]:
            made.meta |= kept_meta(user)
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


def _pooled(node: fx.Node, sizes: _Shape, rank: int, kind: str) -> fx.Node:
    reduce = _ATEN.amax.default if kind == "amax" else _ATEN.mean.dim
    made: Any = node.args[0]
    for place, size in enumerate(per_axis(node.args[1], rank)):
        axis = len(sizes) - rank + place
        n = sizes[axis]
        parts = [
            insert(node, reduce, insert(node, _ATEN.slice.Tensor, made, axis, *piece), [axis], True)
            for piece in ((i * n // size, -(-(i + 1) * n // size)) for i in range(size))
        ]
        made = parts[0] if len(parts) == 1 else insert(node, _ATEN.cat.default, parts, axis)
    return made  # type: ignore[no-any-return]


_LOWEST = -3e38


#: Spatial axes of each maximum pooling, by operator; the second table's also say where it lies.
_MAX_POOLS = {_ATEN.max_pool1d.default: 1, _ATEN.max_pool2d.default: 2, _ATEN.max_pool3d.default: 3}
_PLACED_MAX_POOLS = {
    _ATEN.max_pool1d_with_indices.default: 1,
    _ATEN.max_pool2d_with_indices.default: 2,
    _ATEN.max_pool3d_with_indices.default: 3,
}


def pool_by_slices(module: fx.GraphModule) -> bool:
    """Replace maximum pooling with dilation or with places; all values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        placed = node.target in _PLACED_MAX_POOLS
        if not placed and node.target not in _MAX_POOLS:
            continue
        sizes, out = shape_of(node.args[0]), _out(node)
        if sizes is None or out is None or not (placed or max(_windows(node)[3]) > 1):
            continue
        _replace(module, node, placed, sizes, out)
        changed = True
    return changed


def _out(node: fx.Node) -> _Shape | None:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, tuple | list) else value
    return tuple(first.shape) if isinstance(first, torch.Tensor) else None


def _windows(node: fx.Node) -> tuple[list[int], ...]:
    """Kernel, stride, padding, dilation, each by spatial axis."""
    rank = (_MAX_POOLS | _PLACED_MAX_POOLS)[node.target]  # type: ignore[index]
    _, *given, _ = arguments_of(node).values()
    kernel, stride, padding, dilation = (per_axis(each, rank) for each in given)
    return kernel, stride or kernel, padding, dilation


def _replace(
    module: fx.GraphModule, node: fx.Node, placed: bool, sizes: _Shape, out: _Shape
) -> None:
    parts, numbers = _parts(node, sizes, out)
    best = functools.reduce(functools.partial(insert, node, _ATEN.maximum.default), parts)
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


def _parts(node: fx.Node, sizes: _Shape, out: _Shape) -> tuple[list[fx.Node], list[torch.Tensor]]:
    """For each place of the window, what lies there, and the number of that place in the image."""
    kernel, stride, padding, dilation = _windows(node)
    rank = len(kernel)
    axes = range(len(sizes) - rank, len(sizes))
    widths: list[int] = []
    for place, axis in enumerate(axes):
        high = (out[axis] - 1) * stride[place] + (kernel[place] - 1) * dilation[place] + 1
        after = max(0, high - sizes[axis] - padding[place])
        widths = [padding[place], after, *widths]  # from the last axis on
    x: Any = node.args[0]
    padded = insert(node, _ATEN.constant_pad_nd.default, x, widths, _LOWEST) if any(widths) else x
    parts, numbers = [], []
    for window in itertools.product(*map(range, kernel)):
        part, number = padded, torch.zeros([], dtype=torch.int64)
        for place, axis in enumerate(axes):
            start, step = window[place] * dilation[place], stride[place]
            end = start + (out[axis] - 1) * step + 1
            part = insert(node, _ATEN.slice.Tensor, part, axis, start, end, step)
            along = torch.arange(out[axis]) * step - padding[place] + start
            number = number[..., None] * sizes[axis] + along
        parts.append(part)
        numbers.append(number)
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
