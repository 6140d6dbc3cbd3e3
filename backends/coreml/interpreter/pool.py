"""Pooling over one, two or three spatial axes of [N, C, *spatial].

The rules of padding stand in ``conv.py``. With ``ceil_mode`` (one or two axes, even padding) the
last window may hang over the end, so that each size is
``ceil((size + padding - kernel) / stride) + 1``, less one where that window would begin in the
padding behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.conv import is_even, pad_spatial, spatial_pads
from edgeserve.backends.coreml.interpreter.registry import register_functions
from edgeserve.backends.coreml.interpreter.values import Bool, ints, truth

_AVERAGE: Any = {n: getattr(functional, f"avg_pool{n}d") for n in (1, 2, 3)}
_MAXIMUM: Any = {n: getattr(functional, f"max_pool{n}d") for n in (1, 2, 3)}


@dataclass(frozen=True)
class _Windows:
    """Where the windows lie.

    Attributes:
        sizes, kernel, strides, pads: Per spatial axis.
        counts: How many windows there are on each axis.
    """

    sizes: Sequence[int]
    kernel: list[int]
    strides: list[int]
    pads: list[tuple[int, int]]
    counts: list[int]
    ceil: bool

    @property
    def simple(self) -> bool:
        """Whether torch's own pooling places them so: even padding of at most half a kernel."""
        small = all(2 * p <= k for (p, _), k in zip(self.pads, self.kernel, strict=True))
        return not self.ceil and small and is_even(self.pads)

    @property
    def padding(self) -> list[int]:
        return [before for before, _ in self.pads]

    def covered(self, x: Tensor, value: float) -> Tensor:
        """``x`` padded so that every window lies inside."""
        each = zip(self.counts, self.strides, self.kernel, self.pads, self.sizes, strict=True)
        around = [
            (before, max((count - 1) * stride + side - size - before, 0))
            for count, stride, side, (before, _), size in each
        ]
        return pad_spatial(x, around, value)

    def cut(self, pooled: Tensor) -> Tensor:
        """The windows of these counts: padding that no window needs may have made one more."""
        for axis, count in enumerate(self.counts, 2):
            pooled = pooled.narrow(axis, 0, count)
        return pooled

    def weights(self, inside: bool) -> Tensor:
        """How many elements each window holds: of the input only, or of its padding too."""
        total = torch.ones(())
        for size, k, s, (before, after), n in zip(
            self.sizes, self.kernel, self.strides, self.pads, self.counts, strict=True
        ):
            low, high = (0, size) if inside else (-before, size + after)
            starts = torch.arange(n) * s - before
            held = (starts + k).clamp(max=high) - starts.clamp(min=low)
            total = total.unsqueeze(-1) * held
        return total


def _sums(x: Tensor, windows: _Windows) -> Tensor:
    pooled = _AVERAGE[x.ndim - 2](windows.covered(x, 0.0), windows.kernel, windows.strides)
    return windows.cut(pooled) * math.prod(windows.kernel)


def _average(x: Tensor, windows: _Windows, inside: bool) -> Tensor:
    """The mean of each window.

    Padding counts as zeros unless it is excluded; what hangs over the padding counts never.
    """
    if not windows.simple:
        return _sums(x, windows) / windows.weights(inside)
    pool, padding = _AVERAGE[x.ndim - 2], windows.padding
    found: Tensor = pool(x, windows.kernel, windows.strides, padding, False, not inside)
    return found


def _maximum(x: Tensor, windows: _Windows, inside: bool) -> Tensor:
    """The largest of each window; padding is never the largest."""
    pool = _MAXIMUM[x.ndim - 2]
    if windows.simple:
        found: Tensor = pool(x, windows.kernel, windows.strides, windows.padding)
        return found
    return windows.cut(pool(windows.covered(x, -math.inf), windows.kernel, windows.strides))


def _l2(x: Tensor, windows: _Windows, inside: bool) -> Tensor:
    """The root of the sum (not the mean) of each window's squares; one or two spatial axes."""
    return _sums(x * x, windows).sqrt()


def _pooling(pool: Callable[[Tensor, _Windows, bool], Tensor]) -> Callable[..., Tensor]:
    """The kernel of a pooling, of which only an average can leave padding out."""

    def compute(
        x: Tensor,
        kernel_sizes: Tensor,
        pad_type: str,
        strides: Tensor | None = None,
        pad: Tensor | None = None,
        exclude_padding_from_average: Bool = False,
        ceil_mode: Bool = False,
    ) -> Tensor:
        sizes, sides, ceil = x.shape[2:], ints(kernel_sizes), truth(ceil_mode)
        steps = [1] * len(sides) if strides is None else ints(strides)
        amounts = [0] * (2 * len(sides)) if pad is None else ints(pad)
        pads = spatial_pads(pad_type, amounts, sizes, sides, steps)
        counts = [
            _count(size, k, s, around, ceil)
            for size, k, s, around in zip(sizes, sides, steps, pads, strict=True)
        ]
        windows = _Windows(sizes, sides, steps, pads, counts, ceil)
        return pool(x, windows, truth(exclude_padding_from_average))

    return compute


register_functions(
    {"avg_pool": _pooling(_average), "l2_pool": _pooling(_l2), "max_pool": _pooling(_maximum)}
)


def _count(size: int, side: int, stride: int, pads: tuple[int, int], ceil: bool) -> int:
    """How many windows one axis has."""
    room = size + sum(pads) - side
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    begins_behind = (count - 1) * stride >= size + pads[0]
    return count - 1 if begins_behind and sum(pads) > 0 else count
