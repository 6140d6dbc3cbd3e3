"""Lower convolutions: padding written out, groups one by one, transposed ones of three axes.

LiteRT's converter stops at a padding that differs from side to side ("same"), and its process ends
at most paddings of a convolution of three axes that reads one channel. Its transposed convolution
pads nothing, or as much as makes the result ``stride`` times as large; of any other padding it
makes other numbers or another shape, without a word. It also gives wrong numbers where each group
of a transposed one has one channel, and has no groups of three axes: a group on its own is an
ordinary convolution. Of a transposed one of three axes it makes an operator that its engine
does not have: between the values go ``stride - 1`` zeros, and the kernel is turned around, so
that an ordinary convolution gives the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.passes.fx_utils import (
    add_tensor,
    arguments_of,
    inline,
    insert,
    overloads,
    per_axis,
    replace_each,
    shape_of,
    tensor_of,
)

_ATEN = torch.ops.aten
_PLAIN = {
    _ATEN.conv1d.padding: _ATEN.conv1d.default,
    _ATEN.conv2d.padding: _ATEN.conv2d.default,
    _ATEN.conv3d.padding: _ATEN.conv3d.default,
    _ATEN.conv3d.default: _ATEN.conv3d.default,
}
_TRANSPOSED = overloads("conv_transpose1d conv_transpose2d.input conv_transpose3d.input")


def lower_padding(module: fx.GraphModule) -> bool:
    """Pad before a convolution, cut and pad behind a transposed one."""
    padded = [n for n in module.graph.nodes if n.target in _PLAIN and _is_padded_first(n)]
    for node in padded:
        _pad_before(node)
    lowered = replace_each(module, _TRANSPOSED, lambda node: _padded_after(module, node))
    return lowered or bool(padded)


def _is_padded_first(node: fx.Node) -> bool:
    known = arguments_of(node)
    sizes = shape_of(known["weight"])
    if sizes is None or isinstance(known["padding"], str):
        return sizes is not None
    return sizes[1] == 1 and any(per_axis(known["padding"], 3))


def _pad_before(node: fx.Node) -> None:
    x, weight, bias, stride, padding, dilation, groups = arguments_of(node).values()
    kernel = (shape_of(weight) or ())[2:]
    steps = per_axis(dilation, len(kernel))
    total = [step * (k - 1) for step, k in zip(steps, kernel, strict=True)]
    if padding != "same":
        known = padding != "valid"
        total = [2 * each for each in per_axis(padding if known else 0, len(kernel))]
    sides: Any = [each // 2 for each in total]
    plain: Any = node.target
    if any(each % 2 for each in total) or plain is _ATEN.conv3d.default:
        widths = [w for each in reversed(total) for w in (each // 2, each - each // 2)]
        x, sides = insert(node, _ATEN.constant_pad_nd.default, x, widths), [0] * len(kernel)
    node.target = _PLAIN[plain]
    node.args = (x, weight, bias, per_axis(stride, len(kernel)), sides, steps, groups)


def _padded_after(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """What replaces a transposed convolution that the converter gets wrong, else None."""
    x, weight, bias, *numbers, groups, gaps = arguments_of(node).values()
    sizes, kernel = shape_of(x) or (), list((shape_of(weight) or ())[2:])
    rank = len(kernel)
    stride, padding, more, dilation = (per_axis(each, rank) for each in (*numbers, gaps))
    if not shape_of(node):
        return None
    if max(stride) > 1 and max(dilation) > 1:  # the converter has one of the two
        weight = _computed(module, node, partial(_spread, steps=dilation), weight)
        kernel = [step * (k - 1) + 1 for step, k in zip(dilation, kernel, strict=True)]
        dilation = [1] * rank
    elif _pads_evenly(kernel, stride, padding, more, dilation):
        return None
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
    return made


def _pads_evenly(
    kernel: Sequence[int],
    stride: list[int],
    padding: list[int],
    more: list[int],
    dilation: list[int],
) -> bool:
    """Whether nothing is padded, or each axis becomes ``stride`` times as long."""
    if any(more):
        return False
    axes = zip(kernel, stride, padding, dilation, strict=True)
    return not any(padding) or all(d == 1 and k - s == 2 * p for k, s, p, d in axes)


_GROUPED = _TRANSPOSED | overloads("conv3d conv3d.padding")


def split_groups(module: fx.GraphModule) -> bool:
    """Replace such convolutions of several groups; values must have fixed sizes."""
    return replace_each(module, _GROUPED, _split)


def _split(node: fx.Node) -> fx.Node | None:
    """A transposed kernel is [in, out / groups, ...], an ordinary one [out, in / groups, ...]."""
    known = arguments_of(node)
    groups, sizes = known["groups"], shape_of(known["weight"])
    if groups == 1 or not sizes:
        return None
    x, weight, bias, *rest = (known | {"groups": 1}).values()
    transposed = "transpose" in str(node.target)
    cut = sizes[0] // groups
    taken, given = (cut, sizes[1]) if transposed else (sizes[1], cut)
    axis = len(shape_of(x) or ()) - (len(sizes) - 1)
    parts = []
    for group in range(groups):
        own = insert(node, _ATEN.slice.Tensor, x, axis, group * taken, (group + 1) * taken)
        kernel = insert(node, _ATEN.slice.Tensor, weight, 0, group * cut, (group + 1) * cut)
        kernel.meta["val"] = weight.meta["val"][:cut]
        shift = None
        if bias is not None:
            shift = insert(node, _ATEN.slice.Tensor, bias, 0, group * given, (group + 1) * given)
        parts.append(insert(node, node.target, own, kernel, shift, *rest))
        own.meta["val"] = x.meta["val"].narrow(axis, group * taken, taken)
        parts[-1].meta["val"] = node.meta["val"].narrow(axis, group * given, given)
    return insert(node, _ATEN.cat.default, parts, axis)


def lower_output_padding(module: fx.GraphModule) -> bool:
    """Pad behind a transposed convolution whose output is padded by more than its padding cuts.

    coremltools takes less as a smaller cut.
    """

    def lower(node: fx.Node) -> fx.Node | None:
        known = arguments_of(node)
        rank = len(shape_of(known["weight"]) or ()) - 2
        cut, more = (per_axis(known[name], rank) for name in ("padding", "output_padding"))
        wide = any(m > c for c, m in zip(cut, more, strict=True))
        return _padded_after(module, node) if wide else None

    return replace_each(module, _TRANSPOSED, lower)


def lower_conv_transpose3d(module: fx.GraphModule) -> bool:
    """Replace ``conv_transpose3d``; values must have fixed sizes."""
    return _replaced(module, lambda node: True)


def lower_output_padded_conv3d(module: fx.GraphModule) -> bool:
    """Replace those that pad their output, which coremltools takes for one axis or two."""
    return _replaced(module, lambda node: any(per_axis(arguments_of(node)["output_padding"], 3)))


def _replaced(module: fx.GraphModule, wanted: Callable[[fx.Node], bool]) -> bool:
    def lower(node: fx.Node) -> fx.Node | None:
        known = shape_of(node) is not None and len(shape_of(node.args[0]) or ()) == 5
        return _as_convolution(module, node) if known and wanted(node) else None

    return replace_each(module, overloads("conv_transpose3d.input"), lower)


def _as_convolution(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    x, weight, bias, *numbers, groups, dilation = arguments_of(node).values()
    steps, sides, extra, gaps = (per_axis(each, 3) for each in (*numbers, dilation))
    kernel = _computed(module, node, partial(_flipped, groups=groups), weight)
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


def _computed(
    module: fx.GraphModule, node: fx.Node, function: Callable[[Tensor], Tensor], weight: fx.Node
) -> fx.Node:
    """A function of a weight: computed now if it is stored, else in each run."""
    held = tensor_of(module, weight)
    if held is not None:
        return add_tensor(module, "kernel", function(held).contiguous(), node)
    made: fx.Node = inline(module, node, function, (weight,))
    return made


def _convolved(
    x: Tensor, kernel: Tensor, bias: Tensor | None, gaps: list[int], groups: int
) -> Tensor:
    """Group by group: the engine's convolution of three axes has none."""
    found = [
        torch.conv3d(_chunk(x, 1, groups, each), _chunk(kernel, 0, groups, each), dilation=gaps)
        for each in range(groups)
    ]
    made = torch.cat(found, 1) if groups > 1 else found[0]
    return made if bias is None else made + bias.reshape(-1, 1, 1, 1)


def _chunk(x: Tensor, axis: int, count: int, place: int) -> Tensor:
    size = x.shape[axis] // count
    return x if count == 1 else x.narrow(axis, place * size, size)


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """[in, out / groups, ...] to [out, in / groups, ...], turned around."""
    turned = weight.flip(2, 3, 4)
    parts = [_chunk(turned, 0, groups, each).transpose(0, 1) for each in range(groups)]
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


def _spread(weight: Tensor, steps: list[int]) -> Tensor:
    """A kernel of gaps as one without, with zeros in the gaps."""
    for axis, step in enumerate(steps):
        weight = _with_zeros(weight, 2 + axis, step)
    return weight


def _padded(x: Tensor, before: list[int], behind: list[int]) -> Tensor:
    """Zeros around the last three axes; less than none cuts off."""
    for place, (start, end) in enumerate(zip(before, behind, strict=True)):
        low, high = max(0, -start), x.shape[2 + place] - max(0, -end)
        x = x.narrow(2 + place, low, high - low)
    pairs = zip(reversed(before), reversed(behind), strict=True)
    widths = [max(0, width) for pair in pairs for width in pair]
    return torch.constant_pad_nd(x, widths) if any(widths) else x
