"""Cropping: by amounts, and boxes resized to one size."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.sampling import grid
from edgeserve.backends.coreml.interpreter.values import integer, ints, number, truth

__all__ = ["crop", "crop_resize", "crop_resize_rois"]


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
    x: Tensor,
    roi: Tensor,
    target_height: Tensor | int = 1,
    target_width: Tensor | int = 1,
    normalized_coordinates: Tensor | bool = False,
    spatial_scale: Tensor | float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: Tensor | float = 0.0,
) -> Tensor:
    """`crop_resize` as it was before iOS 17, with an axis for the images.

    Args:
        x: [B, C, H, W].
        roi: [N, 1, 4, 1, 1], each box out of each image; or [N, 1, 5, 1, 1], the index of an image
            and a box of it.
        target_height: As all that follow, see `crop_resize`.
        target_width: Columns of each result.
        normalized_coordinates: Whether coordinates run from 0 to 1.
        spatial_scale: A factor for coordinates.
        box_coordinate_mode: What the four numbers of a box are.
        sampling_mode: See `sampling`.
        pad_value: What lies outside the image (always 0 before iOS 16).

    Returns:
        [N, B, C, target_height, target_width]; with image indices [N, 1, C, ...].
    """
    rows = roi.reshape(len(roi), -1)
    each = torch.arange(len(x)).expand(len(rows), -1)
    images = rows[:, :1].long() if rows.shape[1] == 5 else each
    crops = crop_resize(
        x,
        rows[:, -4:].repeat_interleave(images.shape[1], 0),
        images.flatten(),
        target_height,
        target_width,
        normalized_coordinates,
        spatial_scale,
        box_coordinate_mode,
        sampling_mode,
        pad_value,
    )
    return crops.reshape(*images.shape, *crops.shape[1:])


@kernel("crop_resize", since="ios17")
def crop_resize(
    x: Tensor,
    boxes: Tensor,
    box_indices: Tensor | None = None,
    target_height: Tensor | int = 1,
    target_width: Tensor | int = 1,
    normalized_coordinates: Tensor | bool = False,
    spatial_scale: Tensor | float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: Tensor | float = 0.0,
) -> Tensor:
    """Boxes out of images, linearly interpolated at the points of `sampling.grid`.

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
        sampling_mode: See `sampling`.
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
