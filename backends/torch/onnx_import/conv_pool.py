"""ONNX convolutions, plain and transposed, and pooling, with every padding that ONNX has.

Windows may be padded unevenly, and a pool's count of windows rounded up or down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op, register_functions


def _by_axes(name: str) -> dict[int, Callable[..., Tensor]]:
    """A function of PyTorch for each number of spatial axes that it has."""
    return {count: getattr(functional, f"{name}{count}d") for count in (1, 2, 3)}


_CONV = _by_axes("conv")
_TRANSPOSED = _by_axes("conv_transpose")

Ends = list[tuple[int, int]]


def explicit_pads(
    node: OnnxNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
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


def _numbers(node: OnnxNode, name: str, count: int) -> list[int]:
    return [int(n) for n in node.get(name) or [1] * count]


@op("Conv")
def _conv(node: OnnxNode, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    if count not in _CONV:
        raise node.refuse(f"{count} spatial axes")
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    ends = explicit_pads(node, list(x.shape[2:]), kernel, strides, dilations)
    x, padding = padded(x, ends)
    group = int(node.get("group", 1))
    return _CONV[count](x, weight, bias, strides, padding, dilations, group)


@op("ConvTranspose")
def _conv_transpose(
    node: OnnxNode, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    count = x.ndim - 2
    if count not in _TRANSPOSED:
        raise node.refuse(f"{count} spatial axes")
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    extra = [int(n) for n in node.get("output_padding") or [0] * count]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    ends = _transposed_crop(node, list(x.shape[2:]), strides, reach, extra)
    call, group = _TRANSPOSED[count], int(node.get("group", 1))
    if all(before == after >= 0 for before, after in ends):
        even = [before for before, _ in ends]
        return call(x, weight, bias, strides, even, extra, group, dilations)
    return _cropped(call(x, weight, bias, strides, [0] * count, extra, group, dilations), ends)


def _transposed_crop(
    node: OnnxNode, sizes: list[int], strides: list[int], reach: list[int], extra: list[int]
) -> Ends:
    """What is taken off each end of the whole answer; ``extra`` grows where that is too little."""
    wanted: list[Any] = list(node.get("output_shape") or [])[-len(sizes) :]
    word = node.get("auto_pad", "NOTSET")
    if not wanted and word in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if not wanted:
        return explicit_pads(node, sizes, [1] * len(sizes), strides, [1] * len(sizes))
    ends = []
    for i, (size, stride, width) in enumerate(zip(sizes, strides, reach, strict=True)):
        total = stride * (size - 1) + extra[i] + width - int(wanted[i])
        if total < 0:
            raise node.refuse("an output shape beyond what the kernel reaches")
        less, more = total // 2, total - total // 2
        ends.append((less, more) if word == "SAME_UPPER" else (more, less))
    return ends


def _cropped(x: Tensor, ends: Ends) -> Tensor:
    index: list[slice] = [slice(None)] * 2
    sizes = x.shape[2:]
    index += [slice(b, size - a) for (b, a), size in zip(ends, sizes, strict=True)]
    return x[tuple(index)]


_MAX = _by_axes("max_pool")
_MEAN = _by_axes("avg_pool")

register_functions(
    {
        "GlobalAveragePool": lambda x: x.mean(list(range(2, x.ndim)), keepdim=True),
        "GlobalMaxPool": lambda x: x.amax(list(range(2, x.ndim)), keepdim=True),
    }
)


class _PoolWindow:
    """Kernel, strides, dilations and padding of one pool."""

    def __init__(self, node: OnnxNode, x: Tensor) -> None:
        self.kernel = [int(n) for n in node.get("kernel_shape")]
        count = len(self.kernel)
        self.strides = [int(n) for n in node.get("strides") or [1] * count]
        self.dilations = [int(n) for n in node.get("dilations") or [1] * count]
        sizes = list(x.shape[2:])
        self.ends = explicit_pads(node, sizes, self.kernel, self.strides, self.dilations)
        self.given = list(self.ends)
        if node.get("ceil_mode", 0):
            self._reach_up(sizes)

    def _reach_up(self, sizes: list[int]) -> None:
        """Padding at the end for a last window that is only partly filled.

        One that would lie in padding alone is left out.
        """
        for axis, (before, after) in enumerate(self.ends):
            stride, size = self.strides[axis], sizes[axis]
            reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            windows = math.ceil((size + before + after - reach) / stride) + 1
            if (windows - 1) * stride >= size + before:
                windows -= 1
            lack = (windows - 1) * stride + reach - (size + before + after)
            self.ends[axis] = (before, after + max(0, lack))


@op("MaxPool")
def _max_pool(node: OnnxNode, x: Tensor) -> Tensor:
    window = _PoolWindow(node, x)
    if node.wants(1):
        raise node.refuse("its second output, the places of the maxima")
    if len(window.kernel) not in _MAX:
        raise node.refuse(f"{len(window.kernel)} spatial axes")
    halves = all(b <= k // 2 for (b, _), k in zip(window.ends, window.kernel, strict=True))
    floats = x if x.dtype.is_floating_point else x.float()
    if halves:
        floats, padding = padded(floats, window.ends, float("-inf"))
    else:
        flat = [n for pair in reversed(window.ends) for n in pair]
        floats, padding = functional.pad(floats, flat, value=float("-inf")), [0] * len(window.ends)
    pool = _MAX[len(window.kernel)]
    made = pool(floats, window.kernel, window.strides, padding, window.dilations)
    return made.to(x.dtype)


@op("AveragePool")
def _average_pool(node: OnnxNode, x: Tensor) -> Tensor:
    window = _PoolWindow(node, x)
    if len(window.kernel) not in _MEAN:
        raise node.refuse(f"{len(window.kernel)} spatial axes")
    if any(dilation != 1 for dilation in window.dilations):
        raise node.refuse("dilations")
    pool, counted = _MEAN[len(window.kernel)], bool(node.get("count_include_pad", 0))
    plain = window.ends == window.given and all(b == a for b, a in window.ends)
    halves = all(b <= k // 2 for (b, _), k in zip(window.ends, window.kernel, strict=True))
    if plain and halves:
        padding = [before for before, _ in window.ends]
        return pool(x, window.kernel, window.strides, padding, False, counted)
    share = _share(x, window, counted)
    flat = [n for pair in reversed(window.ends) for n in pair]
    return pool(functional.pad(x, flat), window.kernel, window.strides) / share


def _share(x: Tensor, window: _PoolWindow, counted: bool) -> Tensor:
    """For each window the share of it that is counted."""
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    inner = [n for pair in reversed(window.given) for n in pair]
    rest = [
        n
        for (b, a), (before, after) in zip(
            reversed(window.given), reversed(window.ends), strict=True
        )
        for n in (before - b, after - a)
    ]
    ones = functional.pad(functional.pad(ones, inner, value=1.0 if counted else 0.0), rest)
    return _MEAN[len(window.kernel)](ones, window.kernel, window.strides)
