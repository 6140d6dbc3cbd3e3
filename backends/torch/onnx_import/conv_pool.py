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

_Function = Callable[..., Tensor]


def _by_axes(name: str) -> dict[int, _Function]:
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


def padded(x: Tensor, ends: Ends, value: float = 0.0) -> Tensor:
    """A tensor with so much added before and after each spatial axis."""
    return functional.pad(x, [n for pair in reversed(ends) for n in pair], value=value)


def _numbers(node: OnnxNode, name: str, count: int) -> list[int]:
    return [int(n) for n in node.get(name) or [1] * count]


def _for_axes(node: OnnxNode, functions: dict[int, _Function], count: int) -> _Function:
    """The function for a number of spatial axes."""
    if count not in functions:
        raise node.refuse(f"{count} spatial axes")
    return functions[count]


@op("Conv")
def _conv(node: OnnxNode, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    call = _for_axes(node, _CONV, count)
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    ends = explicit_pads(node, list(x.shape[2:]), kernel, strides, dilations)
    even, group = all(before == after for before, after in ends), int(node.get("group", 1))
    padding = [before if even else 0 for before, _ in ends]
    return call(x if even else padded(x, ends), weight, bias, strides, padding, dilations, group)


@op("ConvTranspose")
def _conv_transpose(
    node: OnnxNode, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    count = x.ndim - 2
    call = _for_axes(node, _TRANSPOSED, count)
    kernel = list(weight.shape[2:])
    strides, dilations = _numbers(node, "strides", count), _numbers(node, "dilations", count)
    extra = [int(n) for n in node.get("output_padding") or [0] * count]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    ends = _transposed_crop(node, list(x.shape[2:]), strides, reach, extra)
    group = int(node.get("group", 1))
    if all(before == after >= 0 for before, after in ends):
        even = [before for before, _ in ends]
        return call(x, weight, bias, strides, even, extra, group, dilations)
    whole = call(x, weight, bias, strides, [0] * count, extra, group, dilations)
    pairs = zip(ends, whole.shape[2:], strict=True)
    return whole[(slice(None), slice(None), *(slice(b, size - a) for (b, a), size in pairs))]


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
        self.strides = _numbers(node, "strides", count)
        self.dilations = _numbers(node, "dilations", count)
        sizes = list(x.shape[2:])
        self.ends = explicit_pads(node, sizes, self.kernel, self.strides, self.dilations)
        self.given = list(self.ends)
        if node.get("ceil_mode", 0):
            self._reach_up(sizes)
        #: No window begins or ends deeper in the padding than half of it reaches.
        self.halves = all(b <= k // 2 for (b, _), k in zip(self.ends, self.kernel, strict=True))
        self.even = all(before == after for before, after in self.ends)

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
    pool = _for_axes(node, _MAX, len(window.kernel))
    floats = x if x.dtype.is_floating_point else x.float()
    plain = window.halves and window.even
    floats = floats if plain else padded(floats, window.ends, -math.inf)
    padding = [before if plain else 0 for before, _ in window.ends]
    made = pool(floats, window.kernel, window.strides, padding, window.dilations)
    return made.to(x.dtype)


@op("AveragePool")
def _average_pool(node: OnnxNode, x: Tensor) -> Tensor:
    window = _PoolWindow(node, x)
    pool = _for_axes(node, _MEAN, len(window.kernel))
    if any(dilation != 1 for dilation in window.dilations):
        raise node.refuse("dilations")
    counted = bool(node.get("count_include_pad", 0))
    if window.ends == window.given and window.even and window.halves:
        padding = [before for before, _ in window.ends]
        return pool(x, window.kernel, window.strides, padding, False, counted)
    share = _share(x, window, counted)
    return pool(padded(x, window.ends), window.kernel, window.strides) / share


def _share(x: Tensor, window: _PoolWindow, counted: bool) -> Tensor:
    """For each window the share of it that is counted."""
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    ones = padded(ones, window.given, 1.0 if counted else 0.0)
    pairs = zip(window.ends, window.given, strict=True)
    ones = padded(ones, [(before - b, after - a) for (before, after), (b, a) in pairs])
    return _MEAN[len(window.kernel)](ones, window.kernel, window.strides)
