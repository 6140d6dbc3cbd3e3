"""Cut an image into patches, and add patches up again, by convolutions with ones and zeros.

``im2col`` and ``col2im`` (`torch.nn.functional.unfold` and ``fold``) are taken apart into tensors
of six axes and a scatter that adds, which formats lack or get wrong. A convolution with a kernel
for each place of the window, one in that place and zero elsewhere, copies the same numbers; its
transpose adds them up. Each channel is an image of its own: grouped transposed convolutions are not
right everywhere.
"""

from __future__ import annotations

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert, shape_of

__all__ = ["unfold_by_convolution"]

_ATEN = torch.ops.aten


def unfold_by_convolution(module: fx.GraphModule) -> bool:
    """Replace ``im2col`` and ``col2im``; the graph's values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        replace = {_ATEN.im2col.default: _unfold, _ATEN.col2im.default: _fold}.get(node.target)
        sizes = shape_of(node.args[0]) if replace else None
        if replace is None or sizes is None or not _is_float(node.args[0]):
            continue
        node.replace_all_uses_with(replace(module, node, sizes))
        module.graph.erase_node(node)
        changed = True
    return changed


def _is_float(node: fx.Node) -> bool:
    return bool(node.meta["val"].is_floating_point())


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
    made = insert(node, _ATEN.reshape.default, cut, list(shape_of(node) or ()))
    made.meta["val"] = node.meta["val"]
    return made


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
    made = insert(node, _ATEN.reshape.default, made, list(shape_of(node) or ()))
    made.meta["val"] = node.meta["val"]
    return made
