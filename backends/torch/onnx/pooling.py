"""ONNX pooling in PyTorch: windows with uneven padding, rounded up or down."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx.convolution import ends_of, padded
from edgeserve.backends.torch.onnx.table import Node, op

__all__: list[str] = []

_MAX: dict[int, Callable[..., Tensor]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
_MEAN: dict[int, Callable[..., Tensor]] = {
    1: functional.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}


@op("GlobalAveragePool")
def _global_average(node: Node, x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.ndim)), keepdim=True)


@op("GlobalMaxPool")
def _global_max(node: Node, x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.ndim)), keepdim=True)


class _Window:
    """Kernel, strides, dilations and padding of one pool."""

    def __init__(self, node: Node, x: Tensor) -> None:
        self.kernel = [int(n) for n in node.get("kernel_shape")]
        count = len(self.kernel)
        self.strides = [int(n) for n in node.get("strides") or [1] * count]
        self.dilations = [int(n) for n in node.get("dilations") or [1] * count]
        sizes = list(x.shape[2:])
        self.ends = ends_of(node, sizes, self.kernel, self.strides, self.dilations)
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
def _max_pool(node: Node, x: Tensor) -> Tensor:
    window = _Window(node, x)
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
def _average_pool(node: Node, x: Tensor) -> Tensor:
    window = _Window(node, x)
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


def _share(x: Tensor, window: _Window, counted: bool) -> Tensor:
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
