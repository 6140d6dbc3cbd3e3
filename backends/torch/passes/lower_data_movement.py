"""Lower operators that only move numbers: ``as_strided``, ``roll``, ``im2col`` and ``col2im``.

When it decomposes an operator, PyTorch sometimes describes a result by sizes and strides over
the memory of another tensor. What it says is found by laying numbers over both: the same order
is a reshape, anything else a lookup with constant places.

coremltools rolls by looking every element up (``gather`` with a range); others lack the
operator. Here a tensor is cut and the pieces are put together the other way round.

``im2col`` and ``col2im`` (`torch.nn.functional.unfold` and ``fold``) are decomposed into tensors
of six axes and a scatter that adds, which formats lack or get wrong. A convolution with a kernel
for each place of the window, one in that place and zero elsewhere, copies the same numbers; its
transpose adds them up. Each channel is an image of its own: grouped transposed convolutions are
not right everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    add_tensor,
    arguments_of,
    insert,
    is_float,
    overloads,
    replace_each,
    shape_of,
)

_ATEN = torch.ops.aten


def lower_as_strided(module: fx.GraphModule) -> bool:
    """Replace ``as_strided`` and ``as_strided_copy``; all values must have fixed sizes."""
    strided = overloads("as_strided as_strided_copy")
    return replace_each(module, strided, lambda node: _restrided(module, node))


def _restrided(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    x: Any = node.args[0]
    sizes = shape_of(x)
    if sizes is None:
        return None
    places = _places(node, sizes)
    size: Any = node.args[1]
    if places.numel() == torch.Size(sizes).numel() and bool(
        (places.reshape(-1) == torch.arange(places.numel())).all()
    ):
        return insert(node, _ATEN.reshape.default, x, list(size))
    row = insert(node, _ATEN.reshape.default, x, [-1])
    index = add_tensor(module, "places", places.reshape(-1), node)
    found = insert(node, _ATEN.index_select.default, row, 0, index)
    return insert(node, _ATEN.reshape.default, found, list(size))


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


def roll_by_slices(module: fx.GraphModule) -> bool:
    """Replace ``roll``; the graph's values must have fixed sizes."""
    return replace_each(module, overloads("roll"), _rolled)


def _rolled(node: fx.Node) -> Any:
    sizes = shape_of(node)
    if sizes is None:
        return None
    made, shifts, axes = arguments_of(node).values()
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
    return made


def unfold_by_convolution(module: fx.GraphModule) -> bool:
    """Replace ``im2col`` and ``col2im``; the graph's values must have fixed sizes."""
    rules = {_ATEN.im2col.default: _unfold, _ATEN.col2im.default: _fold}

    def lower(node: Any) -> fx.Node | None:
        sizes = shape_of(node.args[0])
        known = sizes is not None and is_float(node.args[0])
        return rules[node.target](module, node, sizes or ()) if known else None

    return replace_each(module, rules, lower)


def _ones(module: fx.GraphModule, node: fx.Node, kernel: list[int]) -> fx.Node:
    """A kernel for each place of the window, one there and zero elsewhere: [places, 1, h, w]."""
    places = kernel[0] * kernel[1]
    one = torch.eye(places, dtype=node.meta["val"].dtype).reshape(places, 1, *kernel)
    return add_tensor(module, "patches", one, node)


def _unfold(module: fx.GraphModule, node: fx.Node, sizes: tuple[int, ...]) -> fx.Node:
    kernel, dilation, padding, stride = (list(arg) for arg in node.args[1:5])  # type: ignore
    flat = insert(node, _ATEN.reshape.default, node.args[0], [-1, 1, *sizes[-2:]])
    ones = _ones(module, node, kernel)
    cut = insert(node, _ATEN.conv2d.default, flat, ones, None, stride, padding, dilation)
    return insert(node, _ATEN.reshape.default, cut, list(shape_of(node) or ()))


def _fold(module: fx.GraphModule, node: fx.Node, sizes: tuple[int, ...]) -> fx.Node:
    size, kernel, dilation, padding, stride = (list(arg) for arg in node.args[1:6])  # type: ignore
    spans = [dil * (k - 1) + 1 for dil, k in zip(dilation, kernel, strict=True)]
    places = [
        (whole + 2 * pad - span) // step + 1
        for whole, span, pad, step in zip(size, spans, padding, stride, strict=True)
    ]
    grid = insert(node, _ATEN.reshape.default, node.args[0], [-1, kernel[0] * kernel[1], *places])
    ones = _ones(module, node, kernel)
    made = insert(
        node, _ATEN.conv_transpose2d.input, grid, ones, None, stride, [0, 0], [0, 0], 1, dilation
    )
    for axis, (whole, n, span, pad, step) in enumerate(
        zip(size, places, spans, padding, stride, strict=True)
    ):
        full = (n - 1) * step + span
        made = insert(node, _ATEN.slice.Tensor, made, axis + 2, pad, min(full, pad + whole))
        lack = max(0, pad + whole - full)  # what no window reaches
        if lack:
            widths = [0, 0, 0, lack] if axis == 0 else [0, lack]
            made = insert(node, _ATEN.constant_pad_nd.default, made, widths)
    return insert(node, _ATEN.reshape.default, made, list(shape_of(node) or ()))
