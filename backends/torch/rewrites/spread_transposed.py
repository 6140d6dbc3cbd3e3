"""Carry out a transposed convolution of three axes as an ordinary one over spread values.

LiteRT's converter makes an operator of it that its engine does not have. Between the values go
``stride - 1`` zeros, and the kernel is turned around: each output is the same sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.rewrites.inline import inline
from edgeserve.backends.torch.rewrites.parts import add_tensor, shape_of, tensor_of

__all__ = ["spread_transposed", "spread_uneven"]

_ATEN = torch.ops.aten


def spread_transposed(module: fx.GraphModule) -> bool:
    """Replace ``conv_transpose3d``; values must have fixed sizes."""
    return _replaced(module, lambda node: True)


def spread_uneven(module: fx.GraphModule) -> bool:
    """Replace those that pad their output, which coremltools takes for one axis or two."""
    return _replaced(module, lambda node: any(_triple(_arguments(node)[5])))


def _replaced(module: fx.GraphModule, wanted: Callable[[fx.Node], bool]) -> bool:
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=_ATEN.conv_transpose3d.input):
        if shape_of(node) is None or len(shape_of(node.args[0]) or ()) != 5 or not wanted(node):
            continue
        node.replace_all_uses_with(_spread(module, node))
        module.graph.erase_node(node)
        changed = True
    return changed


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    given: list[Any] = [*node.args, *(None, 1, 0, 0, 1, 1)[len(node.args) - 2 :]]
    names = ("bias", "stride", "padding", "output_padding", "groups", "dilation")
    rest = (node.kwargs.get(name, each) for name, each in zip(names, given[2:], strict=True))
    return (*given[:2], *rest)


def _spread(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    x, weight, bias, stride, padding, more, groups, dilation = _arguments(node)
    steps, sides, extra, gaps = map(_triple, (stride, padding, more, dilation))
    held = tensor_of(module, weight)
    if held is not None:  # turned around now, not in each run
        kernel = add_tensor(module, "turned", _turned(held, groups).contiguous(), node)
    else:
        kernel = inline(module, node, lambda w: _turned(w, groups), (weight,))
    size = (shape_of(weight) or ())[2:]
    ends = [gap * (k - 1) - side for gap, k, side in zip(gaps, size, sides, strict=True)]

    def carried_out(x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        wide = x
        for axis, step in enumerate(steps):
            wide = _with_zeros(wide, 2 + axis, step)
        wide = _padded(wide, ends, [e + m for e, m in zip(ends, extra, strict=True)])
        return _convolved(wide, kernel, bias, gaps, groups)

    made: fx.Node = inline(module, node, carried_out, (x, kernel, bias))
    made.meta["val"] = node.meta["val"]
    return made


def _convolved(
    x: Tensor, kernel: Tensor, bias: Tensor | None, gaps: list[int], groups: int
) -> Tensor:
    """Group by group: the engine's convolution of three axes has none."""
    found = [
        torch.conv3d(_part(x, 1, groups, each), _part(kernel, 0, groups, each), dilation=gaps)
        for each in range(groups)
    ]
    made = torch.cat(found, 1) if groups > 1 else found[0]
    return made if bias is None else made + bias.reshape(-1, 1, 1, 1)


def _part(x: Tensor, axis: int, count: int, place: int) -> Tensor:
    size = x.shape[axis] // count
    return x if count == 1 else x.narrow(axis, place * size, size)


def _triple(given: Any) -> list[int]:
    each = list(given) if isinstance(given, list | tuple) else [given]
    return each * (3 // len(each))


def _turned(weight: Tensor, groups: int) -> Tensor:
    """[in, out / groups, ...] to [out, in / groups, ...], turned around."""
    turned = weight.flip(2, 3, 4)
    parts = [_part(turned, 0, groups, each).transpose(0, 1) for each in range(groups)]
    return torch.cat(parts) if groups > 1 else parts[0]


def _with_zeros(x: Tensor, axis: int, step: int) -> Tensor:
    """Zeros between the values along an axis; in four axes, which formats pad."""
    if step == 1:
        return x
    sizes = list(x.shape)
    before, behind = sizes[:axis], sizes[axis + 1 :]
    flat = x.reshape(torch.Size(before).numel(), sizes[axis], 1, torch.Size(behind).numel())
    wide = torch.constant_pad_nd(flat, [0, 0, 0, step - 1])
    wide = wide.reshape(*before, sizes[axis] * step, *behind)
    return wide.narrow(axis, 0, (sizes[axis] - 1) * step + 1)


def _padded(x: Tensor, before: list[int], behind: list[int]) -> Tensor:
    """Zeros around the last three axes; less than none cuts off."""
    for place, (start, end) in enumerate(zip(before, behind, strict=True)):
        low, high = max(0, -start), x.shape[2 + place] - max(0, -end)
        x = x.narrow(2 + place, low, high - low)
    widths = [
        w
        for pair in zip(reversed(before), reversed(behind), strict=True)
        for w in (max(0, pair[0]), max(0, pair[1]))
    ]
    return torch.constant_pad_nd(x, widths) if any(widths) else x
