"""Resizing and cropping of images: to a size, by a factor, by amounts, and boxes.

Where resizing reads: a *sampling mode* spreads ``count`` points over the interval from ``start``
to ``end`` (for a whole axis 0 and size - 1). With ``length = end - start``:

- ``STRICT_ALIGN_CORNERS``: the first on ``start``, the last on ``end``; a single one on
  ``start``.
- ``ALIGN_CORNERS``: the same, but a single one in the middle.
- ``DEFAULT``: ``(length + 1) / count`` apart, from ``start`` on.
- ``UNALIGN_CORNERS``: the centres of ``count`` equal pieces, as pixels have their centre in
  their middle (half-pixel centers).
- ``OFFSET_CORNERS``: the centres of ``count`` equal pieces of the interval itself, which is
  taken to be at least 1 long: what RoI align uses.

Points are held inside the interval. They are computed in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.plan_nodes import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import (
    Bool,
    Float,
    Int,
    integer,
    ints,
    number,
    truth,
)
from edgeserve.errors import MilError


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


def _whole_axis(size: int, count: int, mode: str) -> Tensor:
    """`grid` over an axis of ``size`` elements: [count] float64."""
    start = torch.zeros(1, dtype=torch.float64)
    return grid(start, start + (size - 1), count, mode)[0]


def _linear_along(x: Tensor, axis: int, count: int, mode: str) -> Tensor:
    """``x`` with ``count`` elements along ``axis``, interpolated linearly between neighbours."""
    size = x.shape[axis]
    if size == count and mode != "OFFSET_CORNERS":
        return x
    points = _whole_axis(size, count, mode)
    low = points.floor()
    shape = [-1] + [1] * (x.ndim - 1 - axis % x.ndim)
    share = (points - low).float().reshape(shape)
    before = x.index_select(axis, low.long())
    after = x.index_select(axis, (low.long() + 1).clamp(max=size - 1))
    return before + (after - before) * share


def _nearest_indices(size: int, count: int, mode: str) -> Tensor:
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
    points = _whole_axis(size, count, mode)
    return (points + 0.5).floor().long().clamp(max=size - 1)


@kernel("resize_bilinear")
def resize_bilinear(
    x: Tensor,
    target_size_height: Int = 1,
    target_size_width: Int = 1,
    sampling_mode: str = "DEFAULT",
) -> Tensor:
    """The last two axes at a given size, linearly interpolated at the points of `grid`."""
    tall = _linear_along(x, -2, integer(target_size_height), sampling_mode)
    return _linear_along(tall, -1, integer(target_size_width), sampling_mode)


@kernel("resize_nearest_neighbor")
def resize_nearest_neighbor(
    x: Tensor, target_size_height: Tensor, target_size_width: Tensor
) -> Tensor:
    """The last two axes at a given size; each output pixel is the input pixel its centre lies in.

    That is index ``floor((i + 0.5) * size / count)``: TensorFlow's nearest resizing with half-pixel
    centers, which coremltools maps to this op and compares it with.
    """
    sizes = integer(target_size_height), integer(target_size_width)
    return _nearest(x, sizes, "UNALIGN_CORNERS")


@kernel("resize", since="ios17")
def resize(
    x: Tensor,
    shape: Tensor,
    resized_dims: Tensor,
    interpolation_mode: str = "LINEAR",
    sampling_mode: str = "DEFAULT",
) -> Tensor:
    """The last ``resized_dims`` axes at the sizes that ``shape`` ends with.

    Args:
        x: Any rank.
        shape: Sizes, aligned at the right; may be computed. 0 leaves an axis as it is.
        resized_dims: How many axes are resized.
        interpolation_mode: "LINEAR" or "NEAREST_NEIGHBOR" (see `_nearest_indices`).
        sampling_mode: See the top of this module.
    """
    count, wanted = integer(resized_dims), ints(shape)
    sizes = tuple(
        size or x.shape[axis] for axis, size in zip(range(-count, 0), wanted[-count:], strict=True)
    )
    check_shape([*x.shape[: x.ndim - count], *sizes], "the result of a resize")
    if interpolation_mode == "NEAREST_NEIGHBOR":
        return _nearest(x, sizes, sampling_mode)
    whole = not x.is_floating_point()
    result = x.float() if whole else x
    for axis, size in zip(range(-count, 0), sizes, strict=True):
        result = _linear_along(result, axis, size, sampling_mode)
    return result


@kernel("upsample_bilinear")
def upsample_bilinear(
    x: Tensor,
    scale_factor_height: Float = 1,
    scale_factor_width: Float = 1,
    align_corners: Bool = True,
    half_pixel_centers: Bool | None = None,
    op: Any = None,
) -> Tensor:
    """The last two axes ``floor(size * factor)`` long, linearly interpolated.

    The points follow from the two sizes, not from the factor. ``align_corners`` means
    STRICT_ALIGN_CORNERS; else ``half_pixel_centers`` (the default then) UNALIGN_CORNERS, and
    neither DEFAULT.

    Raises:
        MilError: EDGE-MIL-030, both are asked for, which has no meaning.
    """
    aligned = truth(align_corners)
    centered = not aligned if half_pixel_centers is None else truth(half_pixel_centers)
    if aligned and centered:
        thing = f"op {getattr(op, 'name', '')!r} (upsample_bilinear)"
        wanted = "align_corners or half_pixel_centers"
        hint = "convert the model with one of the two"
        raise MilError("EDGE-MIL-030", thing, wanted=wanted, got="both", hint=hint)
    modes = {(True, False): "STRICT_ALIGN_CORNERS", (False, True): "UNALIGN_CORNERS"}
    mode = modes.get((aligned, centered), "DEFAULT")
    height = _scaled(x.shape[-2], scale_factor_height)
    width = _scaled(x.shape[-1], scale_factor_width)
    return _linear_along(_linear_along(x, -2, height, mode), -1, width, mode)


@kernel("upsample_nearest_neighbor")
def upsample_nearest_neighbor(
    x: Tensor, scale_factor_height: Float = 1, scale_factor_width: Float = 1
) -> Tensor:
    """The last two axes ``floor(size * factor)`` long.

    Each output pixel is the input pixel that its first corner lies in: index
    ``floor(i * size / count)``, as in PyTorch's "nearest", here exact in integers.
    """
    for axis, factor in ((-2, scale_factor_height), (-1, scale_factor_width)):
        size = x.shape[axis]
        count = _scaled(size, factor)
        if count != size:
            x = x.index_select(axis, torch.arange(count) * size // count)
    return x


def _scaled(size: int, factor: Float) -> int:
    """``floor(size * factor)``, multiplied in float32 as the op's type is inferred."""
    return int(torch.floor(torch.as_tensor(factor) * size).item())


def _nearest(x: Tensor, sizes: tuple[int, ...], mode: str) -> Tensor:
    for axis, count in zip(range(-len(sizes), 0), sizes, strict=True):
        x = x.index_select(axis, _nearest_indices(x.shape[axis], count, mode))
    return x


@kernel("crop")
def crop(x: Tensor, crop_height: Tensor, crop_width: Tensor) -> Tensor:
    """``x`` less the given rows and columns.

    Args:
        x: [..., H, W].
        crop_height: [2], rows to take off the top and the bottom.
        crop_width: [2], columns to take off the left and the right.
    """
    (top, bottom), (left, right) = ints(crop_height), ints(crop_width)
    height, width = x.shape[-2:]
    return x[..., top : height - bottom, left : width - right]


@kernel("crop_resize")
def crop_resize_rois(
    x: Tensor, roi: Tensor, target_height: Int = 1, target_width: Int = 1, **options: Any
) -> Tensor:
    """`crop_resize` as it was before iOS 17, with an axis for the images.

    Args:
        x: [B, C, H, W].
        roi: [N, 1, 4, 1, 1], each box out of each image; or [N, 1, 5, 1, 1], the index of an image
            and a box of it.
        target_height: As all that follow, see `crop_resize`.
        target_width: Columns of each result.
        options: The others (``pad_value`` is always 0 before iOS 16).

    Returns:
        [N, B, C, target_height, target_width]; with image indices [N, 1, C, ...].
    """
    rows = roi.reshape(len(roi), -1)
    each = torch.arange(len(x)).expand(len(rows), -1)
    images = rows[:, :1].long() if rows.shape[1] == 5 else each
    boxes = rows[:, -4:].repeat_interleave(images.shape[1], 0)
    crops = crop_resize(x, boxes, images.flatten(), target_height, target_width, **options)
    return crops.reshape(*images.shape, *crops.shape[1:])


@kernel("crop_resize", since="ios17")
def crop_resize(
    x: Tensor,
    boxes: Tensor,
    box_indices: Tensor | None = None,
    target_height: Int = 1,
    target_width: Int = 1,
    normalized_coordinates: Bool = False,
    spatial_scale: Float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: Float = 0.0,
) -> Tensor:
    """Boxes out of images, linearly interpolated at the points of `grid`.

    A point outside the image is ``pad_value``, as TensorFlow's ``crop_and_resize`` has it. A box
    may be turned round: its crop is mirrored.

    Args:
        x: [B, C, H, W].
        boxes: [N, 4].
        box_indices: [N], the image of each box; box i is of image i where left out.
        target_height: Rows of each result.
        target_width: Columns of each result.
        normalized_coordinates: Whether coordinates run from 0 to 1, to be multiplied by H - 1 and
            W - 1; else they are pixels.
        spatial_scale: A factor for coordinates (of RoI align).
        box_coordinate_mode: "CORNERS_..." is start and end, "CENTER_SIZE_..." middle and extent;
            "..._HEIGHT_FIRST" or "..._WIDTH_FIRST" says whose coordinate comes first.
        sampling_mode: See the top of this module.
        pad_value: What lies outside the image.

    Returns:
        [N, C, target_height, target_width].
    """
    height, width = x.shape[-2:]
    tall, wide = (height - 1, width - 1) if truth(normalized_coordinates) else (1, 1)
    top, left, bottom, right = _corners(boxes.double() * number(spatial_scale), box_coordinate_mode)
    ys = grid(top * tall, bottom * tall, integer(target_height), sampling_mode).unsqueeze(2)
    xs = grid(left * wide, right * wide, integer(target_width), sampling_mode).unsqueeze(1)
    images = torch.arange(len(boxes)) if box_indices is None else box_indices.long()
    crops = _interpolated(x, images.reshape(-1, 1, 1), ys, xs)
    seen = (ys >= 0) & (ys <= height - 1) & (xs >= 0) & (xs <= width - 1)
    return torch.where(seen.unsqueeze(1), crops, number(pad_value))


def _corners(boxes: Tensor, mode: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, bottom and right of [N, 4] boxes, each [N]."""
    first, second, third, fourth = boxes.unbind(1)
    if mode.endswith("_WIDTH_FIRST"):
        first, second, third, fourth = second, first, fourth, third
    if mode.startswith("CENTER_SIZE_"):
        return first - third / 2, second - fourth / 2, first + third / 2, second + fourth / 2
    return first, second, third, fourth


def _interpolated(x: Tensor, images: Tensor, ys: Tensor, xs: Tensor) -> Tensor:
    """The bilinear values of images at points inside them; of points outside, anything finite.

    Args:
        x: [B, C, H, W].
        images: [N, 1, 1] indices.
        ys: [N, rows, 1].
        xs: [N, 1, columns].

    Returns:
        [N, C, rows, columns].
    """
    (top, bottom, down), (left, right, along) = _neighbours(ys, x), _neighbours(xs, x.mT)
    pixels = x.permute(0, 2, 3, 1)
    upper = torch.lerp(pixels[images, top, left], pixels[images, top, right], along)
    lower = torch.lerp(pixels[images, bottom, left], pixels[images, bottom, right], along)
    return torch.lerp(upper, lower, down).permute(0, 3, 1, 2)


def _neighbours(points: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The elements of axis -2 before and behind each point, and how far it is between them."""
    last = x.shape[-2] - 1
    held = points.clamp(0, last)
    before = held.floor()
    behind = (before + 1).clamp(max=last)
    return before.long(), behind.long(), (held - before).float().unsqueeze(-1)
