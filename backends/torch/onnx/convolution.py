"""Convolutions, plain and transposed, with every padding that ONNX has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx.table import Node, op

__all__ = ["ends_of", "padded"]

_CONV: dict[int, Callable[..., Tensor]] = {
    1: functional.conv1d,
    2: functional.conv2d,
    3: functional.conv3d,
}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}

Ends = list[tuple[int, int]]


def ends_of(
    node: Node, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> Ends:
    """What is added before and after each spatial axis."""
    count, word = len(kernel), node.get("auto_pad", "NOTSET")
    if word in ("NOTSET", ""):
        pads = [int(n) for n in node.get("pads") or [0] * 2 * count]
        return list(zip(pads[:count], pads[count:], strict=True))
    if word == "VALID":
        return [(0, 0)] * count
    ends = []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (width - 1) * dilation + 1
        total = max(0, (math.ceil(size / stride) - 1) * stride + reach - size)
        less, more = total // 2, total - total // 2
        ends.append((less, more) if word == "SAME_UPPER" else (more, less))
    return ends


def padded(x: Tensor, ends: Ends, value: float = 0.0) -> tuple[Tensor, list[int]]:
    """A tensor with what is left to a convolution or a pool as padding, the same at both ends."""
    if all(before == after for before, after in ends):
        return x, [before for before, _ in ends]
    flat = [n for pair in reversed(ends) for n in pair]
    return functional.pad(x, flat, value=value), [0] * len(ends)


def _numbers(node: Node, name: str, count: int) -> list[int]:
    return [int(n) for n in node.get(name) or [1] * count]


@op("Conv")
def _conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    if count not in _CONV:
        raise node.refuse(f"{count} spatial axes")
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    ends = ends_of(node, list(x.shape[2:]), kernel, strides, dilations)
    x, padding = padded(x, ends)
    group = int(node.get("group", 1))
    return _CONV[count](x, weight, bias, strides, padding, dilations, group)


@op("ConvTranspose")
def _conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    if count not in _TRANSPOSED:
        raise node.refuse(f"{count} spatial axes")
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    extra = [int(n) for n in node.get("output_padding") or [0] * count]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    ends = _cut(node, list(x.shape[2:]), strides, reach, extra)
    call, group = _TRANSPOSED[count], int(node.get("group", 1))
    if all(before == after >= 0 for before, after in ends):
        even = [before for before, _ in ends]
        return call(x, weight, bias, strides, even, extra, group, dilations)
    return _trimmed(call(x, weight, bias, strides, [0] * count, extra, group, dilations), ends)


def _cut(
    node: Node, sizes: list[int], strides: list[int], reach: list[int], extra: list[int]
) -> Ends:
    """What is taken off each end of the whole answer; ``extra`` grows where that is too little."""
    wanted: list[Any] = list(node.get("output_shape") or [])[-len(sizes) :]
    word = node.get("auto_pad", "NOTSET")
    if not wanted and word in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if not wanted:
        return ends_of(node, sizes, [1] * len(sizes), strides, [1] * len(sizes))
    ends = []
    for i, (size, stride, width) in enumerate(zip(sizes, strides, reach, strict=True)):
        total = stride * (size - 1) + extra[i] + width - int(wanted[i])
        if total < 0:
            raise node.refuse("an output shape beyond what the kernel reaches")
        less, more = total // 2, total - total // 2
        ends.append((less, more) if word == "SAME_UPPER" else (more, less))
    return ends


def _trimmed(x: Tensor, ends: Ends) -> Tensor:
    index: list[slice] = [slice(None)] * 2
    sizes = x.shape[2:]
    index += [slice(b, size - a) for (b, a), size in zip(ends, sizes, strict=True)]
    return x[tuple(index)]
