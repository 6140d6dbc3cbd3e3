"""Sampling of an image at arbitrary points: given one by one, or by an affine map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Bool, Float, integer, number, truth


@kernel("resample")
def resample(
    x: Tensor,
    coordinates: Tensor,
    sampling_mode: str,
    padding_mode: str,
    padding_value: Float,
    coordinates_mode: str,
    align_corners: Bool,
) -> Tensor:
    """``x`` at given points.

    Args:
        x: [B, C, H, W].
        coordinates: [B, rows, columns, 2], each point as (x, y); float or integer.
        sampling_mode: "bilinear", or "nearest" (of two equally near, the even index).
        padding_mode: What stands beyond the edge of ``a b c``. "constant": ``padding_value``;
            "border": ``a a|a b c|c c``; "reflection": ``c b|a b c|b a``; "symmetric":
            ``b a|a b c|c b``.
        padding_value: See above.
        coordinates_mode: "unnormalized": pixels. "normalized_minus_one_to_one" and
            "normalized_zero_to_one": the image spans that interval.
        align_corners: Whether the ends of the interval are the centres of the outermost pixels;
            else they are their outer edges.

    Returns:
        [B, C, rows, columns].
    """
    height, width = x.shape[-2:]
    aligned = truth(align_corners)
    xs = _pixels(coordinates[..., 0].float(), width, coordinates_mode, aligned)
    ys = _pixels(coordinates[..., 1].float(), height, coordinates_mode, aligned)
    xs, ys = _folded(xs, width, padding_mode), _folded(ys, height, padding_mode)
    outside = number(padding_value)
    if sampling_mode == "nearest":
        return _at(x, xs.round(), ys.round(), outside)
    left, top = xs.floor(), ys.floor()
    along, down = (xs - left).unsqueeze(1), (ys - top).unsqueeze(1)
    upper = torch.lerp(_at(x, left, top, outside), _at(x, left + 1, top, outside), along)
    lower = torch.lerp(_at(x, left, top + 1, outside), _at(x, left + 1, top + 1, outside), along)
    return torch.lerp(upper, lower, down)


@kernel("affine")
def affine(
    x: Tensor,
    transform_matrix: Tensor,
    output_height: Tensor,
    output_width: Tensor,
    align_corners: Bool,
    **sampling: Any,
) -> Tensor:
    """`resample` at the points that an affine map gives.

    The output's pixels have coordinates from -1 to 1 too, and ``(x, y)`` of the output is read from
    ``(a0 x + a1 y + a2, b0 x + b1 y + b2)`` of the input.

    Args:
        x: [B, C, H, W].
        transform_matrix: [B or 1, 6]: a0, a1, a2, b0, b1, b2.
        output_height: Rows of the output.
        output_width: Columns of the output.
        align_corners: As all that follow, see `resample`; Core ML knows True.
        sampling: Of ``padding_mode`` Core ML knows "constant", of ``padding_value`` 0, of
            ``coordinates_mode`` "normalized_minus_one_to_one".

    Returns:
        [B, C, output_height, output_width].
    """
    maps = transform_matrix.expand(x.shape[0], 6).reshape(-1, 2, 3)
    sizes = [x.shape[0], x.shape[1], integer(output_height), integer(output_width)]
    points = torch.nn.functional.affine_grid(maps, sizes, align_corners=truth(align_corners))
    return resample(x, points, align_corners=align_corners, **sampling)


def _pixels(points: Tensor, size: int, mode: str, aligned: bool) -> Tensor:
    """Coordinates in pixels: 0 is the centre of the first."""
    if mode == "unnormalized":
        return points
    if mode == "normalized_minus_one_to_one":
        points = (points + 1) / 2
    return points * (size - 1) if aligned else points * size - 0.5


def _folded(points: Tensor, size: int, mode: str) -> Tensor:
    """Coordinates led back into the image, as the padding mode has it."""
    if mode == "constant":
        return points
    if mode == "reflection":
        points = _mirrored(points, 0.0, size - 1.0)
    elif mode == "symmetric":
        points = _mirrored(points, -0.5, size - 0.5)
    return points.clamp(0, size - 1)


def _mirrored(points: Tensor, low: float, high: float) -> Tensor:
    """Coordinates mirrored at two walls until they lie between them."""
    room = high - low
    if room <= 0:
        return torch.zeros_like(points)
    off = torch.remainder(points - low, 2 * room)
    return low + torch.minimum(off, 2 * room - off)


def _at(x: Tensor, columns: Tensor, rows: Tensor, outside: float) -> Tensor:
    """The pixels at whole coordinates: [B, C, rows, columns]."""
    batch, channels, height, width = x.shape
    seen = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    across, down = columns.long().clamp(0, width - 1), rows.long().clamp(0, height - 1)
    index = (down * width + across).reshape(batch, 1, -1).expand(-1, channels, -1)
    pixels = x.flatten(2).gather(2, index).reshape(batch, channels, *columns.shape[1:])
    return torch.where(seen.unsqueeze(1), pixels, outside)
