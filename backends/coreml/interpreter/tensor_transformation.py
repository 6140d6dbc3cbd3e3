"""The same values in another shape or order; slices cut out of a tensor, and put in."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel, register_functions
from edgeserve.backends.coreml.interpreter.values import Int, integer, ints, truth


@kernel("reshape")
def reshape(x: Tensor, shape: Tensor) -> Tensor:
    """Before iOS 17: a 0 keeps the size of the same axis, and needs an equal rank."""
    sizes = ints(shape)
    if 0 in sizes and len(sizes) != x.dim():
        raise ValueError(f"a 0 in shape {sizes} for an input of rank {x.dim()}")
    return x.reshape([size or x.shape[axis] for axis, size in enumerate(sizes)])


@kernel("reshape", since="ios17")
def reshape_from_right(x: Tensor, shape: Tensor) -> Tensor:
    """From iOS 17 on: a 0 keeps the size of the axis that is as far from the right, or is 1."""
    sizes = ints(shape)
    if 0 in sizes:
        missing = len(sizes) - x.dim()
        sizes = [
            size or (x.shape[axis - missing] if axis >= missing else 1)
            for axis, size in enumerate(sizes)
        ]
    return x.reshape(sizes)


_Many = list[Tensor]


@kernel("reshape_like")
def reshape_like(
    x: Tensor, ref_tensors: _Many, begins: _Many, ends: _Many, end_masks: _Many
) -> Tensor:
    """Reshape to sizes taken from other tensors: of each the axes from a begin to an end."""
    sizes: list[int] = []
    for ref, begin, end, mask in zip(ref_tensors, begins, ends, end_masks, strict=True):
        sizes += ref.shape[integer(begin) : None if truth(mask) else integer(end)]
    return x.reshape(sizes)


@kernel("expand_dims")
def expand_dims(x: Tensor, axes: Tensor) -> Tensor:
    """Insert axes of size 1; negative places count in the result."""
    places = ints(axes)
    rank = x.dim() + len(places)
    for axis in sorted(axis % rank for axis in places):
        x = x.unsqueeze(axis)
    return x


register_functions(
    {
        # Drop axes of size 1; axes of another size are left alone.
        "squeeze": lambda x, axes=None: (
            x.squeeze() if axes is None else x.squeeze(tuple(ints(axes)))
        ),
        # Permute the axes.
        "transpose": lambda x, perm: x.permute(ints(perm)) if x.dim() else x,
        # Turn the order along some axes around, or along all.
        "reverse": lambda x, axes=None: x.flip(
            list(range(x.dim())) if axes is None else ints(axes)
        ),
        # Channels to blocks of pixels, as PyTorch orders them: a block is the fastest part.
        "pixel_shuffle": lambda x, upscale_factor: functional.pixel_shuffle(
            x, integer(upscale_factor)
        ),
        # The inverse of ``pixel_shuffle``.
        "pixel_unshuffle": lambda x, downscale_factor: functional.pixel_unshuffle(
            x, integer(downscale_factor)
        ),
    }
)


@kernel("reverse_sequence")
def reverse_sequence(x: Tensor, lengths: Tensor, seq_axis: Int = 0, batch_axis: Int = 0) -> Tensor:
    """Turn the first ``lengths[i]`` elements of each sequence around; the rest stays."""
    along, batch = integer(seq_axis) % x.dim(), integer(batch_axis) % x.dim()
    places = torch.arange(x.shape[along])
    count = lengths.to(torch.int64)[:, None]
    index = torch.where(places < count, count - 1 - places, places)  # batch x sequence
    shape = [1] * x.dim()
    shape[batch], shape[along] = x.shape[batch], x.shape[along]
    index = (index if batch < along else index.T).reshape(shape).expand(x.shape)
    return x.gather(along, index)


@kernel("sliding_windows")
def sliding_windows(x: Tensor, axis: Tensor, size: Tensor, stride: Int = 1) -> Tensor:
    """All windows along an axis; the places inside a window become the axis behind it."""
    at = integer(axis) % x.dim()
    return x.unfold(at, integer(size), integer(stride)).movedim(-1, at + 1)


@kernel("depth_to_space")
def depth_to_space(x: Tensor, block_size: Tensor) -> Tensor:
    """Channels to blocks of pixels; a block's row is the slowest part of the channel number."""
    n, c, h, w = x.shape
    b = integer(block_size)
    blocks = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c // (b * b), h * b, w * b)


@kernel("space_to_depth")
def space_to_depth(x: Tensor, block_size: Tensor) -> Tensor:
    """The inverse of ``depth_to_space``."""
    n, c, h, w = x.shape
    b = integer(block_size)
    blocks = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * b * b, h // b, w // b)


@kernel("space_to_batch")
def space_to_batch(x: Tensor, block_shape: Tensor, paddings: Tensor) -> Tensor:
    """Pad with zeros, then move each place inside a block to the batch, slowest part first."""
    (top, bottom), (left, right) = paddings.tolist()
    padded = functional.pad(x, (left, right, top, bottom))
    n, c, h, w = padded.shape
    bh, bw = ints(block_shape)
    blocks = padded.reshape(n, c, h // bh, bh, w // bw, bw).permute(3, 5, 0, 1, 2, 4)
    return blocks.reshape(n * bh * bw, c, h // bh, w // bw)


@kernel("batch_to_space")
def batch_to_space(x: Tensor, block_shape: Tensor, crops: Tensor) -> Tensor:
    """The inverse of ``space_to_batch``, cropped."""
    (top, bottom), (left, right) = crops.tolist()
    bh, bw = ints(block_shape)
    n, c, h, w = x.shape
    blocks = x.reshape(bh, bw, n // (bh * bw), c, h, w).permute(2, 3, 4, 0, 5, 1)
    whole = blocks.reshape(n // math.prod((bh, bw)), c, h * bh, w * bw)
    return whole[:, :, top : h * bh - bottom, left : w * bw - right]


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
