"""Write out what convolutions pad: "same", and what a transposed one adds at the end.

LiteRT's converter stops at a padding that differs from side to side, and at a transposed
convolution with output padding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["spell_padding"]

_ATEN = torch.ops.aten
_SAME = {
    _ATEN.conv1d.padding: _ATEN.conv1d.default,
    _ATEN.conv2d.padding: _ATEN.conv2d.default,
    _ATEN.conv3d.padding: _ATEN.conv3d.default,
}
_TRANSPOSED = {
    _ATEN.conv_transpose1d.default,
    _ATEN.conv_transpose2d.input,
    _ATEN.conv_transpose3d.input,
}


def spell_padding(module: fx.GraphModule) -> bool:
    """Pad before a convolution, cut and pad behind a transposed one."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _SAME and shape_of(node.args[1]):
            changed = True
            _pad_before(node)
        elif node.target in _TRANSPOSED and any(_arguments(node)[2]) and shape_of(node):
            changed = True
            _pad_behind(node)
            module.graph.erase_node(node)
    return changed


def _pad_before(node: fx.Node) -> None:
    defaults: list[Any] = [None, 1, "valid", 1, 1]
    given: list[Any] = [*node.args, *defaults[len(node.args) - 2 :]]
    x, weight, bias, stride, padding, dilation, groups = given
    kernel = (shape_of(weight) or ())[2:]
    steps: Any = dilation if isinstance(dilation, list | tuple) else [dilation] * len(kernel)
    steps = list(steps) * (len(kernel) // len(steps))
    total = [
        step * (k - 1) if padding == "same" else 0 for step, k in zip(steps, kernel, strict=True)
    ]
    sides: Any = [each // 2 for each in total]
    if any(each % 2 for each in total):
        widths = [w for each in reversed(total) for w in (each // 2, each - each // 2)]
        x, sides = insert(node, _ATEN.constant_pad_nd.default, x, widths), [0] * len(kernel)
    strides: Any = stride if isinstance(stride, list | tuple) else [stride] * len(kernel)
    plain: Any = node.target
    node.target = _SAME[plain]
    node.args = (x, weight, bias, strides, sides, steps, groups)


def _arguments(node: fx.Node) -> tuple[list[int], list[int], list[int], int, list[int]]:
    """Stride, padding, output padding, groups, dilation."""
    rank = len(shape_of(node.args[1]) or ()) - 2
    given: list[Any] = [*node.args[3:], *(1, 0, 0, 1, 1)[max(0, len(node.args) - 3) :]]
    stride, padding, more, dilation = (
        list(each) * (rank // len(each)) if isinstance(each, list | tuple) else [each] * rank
        for each in (*given[:3], given[4])
    )
    return stride, padding, more, given[3], dilation


def _pad_behind(node: fx.Node) -> None:
    stride, padding, more, groups, dilation = _arguments(node)
    x, weight, *rest = node.args
    bias: Any = rest[0] if rest else None
    sizes, kernel = shape_of(x) or (), (shape_of(weight) or ())[2:]
    rank = len(kernel)
    zeros = [0] * rank
    made = insert(node, node.target, x, weight, None, stride, zeros, zeros, groups, dilation)
    widths: list[int] = []
    for place in range(rank):
        axis = len(sizes) - rank + place
        full = (sizes[axis] - 1) * stride[place] + dilation[place] * (kernel[place] - 1) + 1
        end = full - padding[place] + more[place]
        made = insert(node, _ATEN.slice.Tensor, made, axis, padding[place], min(full, end))
        widths = [0, max(0, end - full), *widths]
    if any(widths):
        made = insert(node, _ATEN.constant_pad_nd.default, made, widths)
    if bias is not None:
        wide = insert(node, _ATEN.reshape.default, bias, [-1, *[1] * rank])
        made = insert(node, _ATEN.add.Tensor, made, wide)
    made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)
