"""Cutting a slice out of a tensor, and putting one in."""

from __future__ import annotations

from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import ints

__all__ = ["slice_by_index", "slice_by_size", "slice_update"]

#: One axis of a slice: an index that drops the axis, or a range.
_Cut = int | slice


def _cuts(
    rank: int,
    begin: Tensor,
    end: Tensor,
    stride: Tensor | None,
    begin_mask: Tensor | None,
    end_mask: Tensor | None,
    squeeze_mask: Tensor | None,
) -> list[_Cut]:
    """The slice of each axis.

    A true ``begin_mask`` or ``end_mask`` means "from the very start" or "to the very end", in the
    direction of the stride; a true ``squeeze_mask`` means the single element at ``begin``. Negative
    places count from the end, as in numpy.
    """
    starts, stops = ints(begin), ints(end)
    steps = ints(stride) if stride is not None else [1] * rank
    no_mask = [False] * rank
    from_start = begin_mask.tolist() if begin_mask is not None else no_mask
    to_end = end_mask.tolist() if end_mask is not None else no_mask
    single = squeeze_mask.tolist() if squeeze_mask is not None else no_mask
    cuts: list[_Cut] = []
    for axis in range(rank):
        start = None if from_start[axis] else starts[axis]
        if single[axis]:
            cuts.append(0 if start is None else start)
        else:
            stop = None if to_end[axis] else stops[axis]
            cuts.append(slice(start, stop, steps[axis]))
    return cuts


@kernel("slice_by_index")
def slice_by_index(
    x: Tensor,
    begin: Tensor,
    end: Tensor,
    stride: Tensor | None = None,
    begin_mask: Tensor | None = None,
    end_mask: Tensor | None = None,
    squeeze_mask: Tensor | None = None,
) -> Tensor:
    """``x[begin:end:stride, ...]`` as in numpy, with masks; a negative stride reads backwards."""
    cuts = _cuts(x.dim(), begin, end, stride, begin_mask, end_mask, squeeze_mask)
    for axis, cut in enumerate(cuts):
        if isinstance(cut, slice) and cut.step < 0:  # torch knows no such slices
            places = range(*cut.indices(x.shape[axis]))
            x = x.flip(axis)
            first = x.shape[axis] - 1 - places.start
            cuts[axis] = slice(first, first - places.step * (len(places) - 1) + 1, -places.step)
            if not len(places):
                cuts[axis] = slice(0, 0, 1)
    return x[tuple(cuts)]


@kernel("slice_by_size")
def slice_by_size(x: Tensor, begin: Tensor, size: Tensor) -> Tensor:
    """``size[i]`` elements from ``begin[i]`` on; -1 means all that follow."""
    for axis, (start, count) in enumerate(zip(ints(begin), ints(size), strict=True)):
        start = start + x.shape[axis] if start < 0 else start
        x = x.narrow(axis, start, x.shape[axis] - start if count == -1 else count)
    return x


@kernel("slice_update")
def slice_update(
    x: Tensor,
    update: Tensor,
    begin: Tensor,
    end: Tensor,
    stride: Tensor | None = None,
    begin_mask: Tensor | None = None,
    end_mask: Tensor | None = None,
    squeeze_mask: Tensor | None = None,
) -> Tensor:
    """A copy of ``x`` with the slice that ``slice_by_index`` would give replaced by ``update``."""
    cuts = _cuts(x.dim(), begin, end, stride, begin_mask, end_mask, squeeze_mask)
    made = x.clone()
    view = made.numpy()  # shares the memory, and knows negative strides
    view[tuple(cuts)] = update.numpy()
    return made
