"""Where resizing reads: grids of points on an axis, and interpolation at them.

A *sampling mode* spreads ``count`` points over the interval from ``start`` to ``end`` (for a whole
axis 0 and size - 1). With ``length = end - start``:

- ``STRICT_ALIGN_CORNERS``: the first on ``start``, the last on ``end``; a single one on ``start``.
- ``ALIGN_CORNERS``: the same, but a single one in the middle.
- ``DEFAULT``: ``(length + 1) / count`` apart, from ``start`` on.
- ``UNALIGN_CORNERS``: the centres of ``count`` equal pieces, as pixels have their centre in their
  middle (half-pixel centers).
- ``OFFSET_CORNERS``: the centres of ``count`` equal pieces of the interval itself, which is taken
  to be at least 1 long: what RoI align uses.

Points are held inside the interval. They are computed in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["grid", "linear_along", "nearest_indices", "whole_axis"]


def grid(start: Tensor, end: Tensor, count: int, mode: str) -> Tensor:
    """Points on one or several intervals.

    Args:
        start: [N] float64.
        end: [N] float64; before ``start`` where a box is turned round.
        count: How many points each interval gets.
        mode: A sampling mode.

    Returns:
        [N, count] float64.

    Raises:
        ValueError: There is no such mode.
    """
    first, last = start.unsqueeze(-1), end.unsqueeze(-1)
    points = first + _offsets(last - first, count, mode)
    return points.clamp(torch.minimum(first, last), torch.maximum(first, last))


def _offsets(length: Tensor, count: int, mode: str) -> Tensor:
    index = torch.arange(count, dtype=torch.float64)
    if mode == "ALIGN_CORNERS" and count == 1:
        return length / 2
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        return index * (length / max(count - 1, 1))
    if mode == "DEFAULT":
        return index * ((length + 1) / count)
    if mode == "UNALIGN_CORNERS":
        return (index + 0.5) * ((length + 1) / count) - 0.5
    if mode == "OFFSET_CORNERS":
        return (index + 0.5) * (length.clamp(min=1) / count)
    raise ValueError(f"unknown sampling_mode {mode!r}")


def whole_axis(size: int, count: int, mode: str) -> Tensor:
    """`grid` over an axis of ``size`` elements: [count] float64."""
    start = torch.zeros(1, dtype=torch.float64)
    return grid(start, start + (size - 1), count, mode)[0]


def linear_along(x: Tensor, axis: int, count: int, mode: str) -> Tensor:
    """``x`` with ``count`` elements along ``axis``, interpolated linearly between neighbours."""
    size = x.shape[axis]
    if size == count and mode != "OFFSET_CORNERS":
        return x
    points = whole_axis(size, count, mode)
    low = points.floor()
    shape = [-1] + [1] * (x.ndim - 1 - axis % x.ndim)
    share = (points - low).float().reshape(shape)
    before = x.index_select(axis, low.long())
    after = x.index_select(axis, (low.long() + 1).clamp(max=size - 1))
    return before + (after - before) * share


def nearest_indices(size: int, count: int, mode: str) -> Tensor:
    """Which of ``size`` elements each of ``count`` points takes.

    ``DEFAULT`` and ``UNALIGN_CORNERS`` take the element that the centre of the point's pixel lies
    in; the other modes the element nearest to the point of `grid`, of two equally near the
    second. (That ``DEFAULT`` is not the DEFAULT of linear interpolation is what
    ``resize_nearest_neighbor`` does, and what coremltools' tests expect of the runtime.)

    Returns:
        [count] int64.
    """
    index = torch.arange(count)
    if mode in ("DEFAULT", "UNALIGN_CORNERS"):
        return (2 * index + 1) * size // (2 * count)
    points = whole_axis(size, count, mode)
    return (points + 0.5).floor().long().clamp(max=size - 1)
