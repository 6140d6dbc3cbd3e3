"""Resizing of the last axes: linear and nearest, to a size or by a factor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.limits import check_shape
from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.sampling import linear_along, nearest_indices
from edgeserve.backends.coreml.interpreter.values import integer, ints, truth
from edgeserve.errors import MilError

__all__ = [
    "resize",
    "resize_bilinear",
    "resize_nearest_neighbor",
    "upsample_bilinear",
    "upsample_nearest_neighbor",
]


@kernel("resize_bilinear")
def resize_bilinear(
    x: Tensor,
    target_size_height: Tensor | int = 1,
    target_size_width: Tensor | int = 1,
    sampling_mode: str = "DEFAULT",
) -> Tensor:
    """The last two axes at a given size, linearly interpolated at the points of `sampling.grid`."""
    tall = linear_along(x, -2, integer(target_size_height), sampling_mode)
    return linear_along(tall, -1, integer(target_size_width), sampling_mode)


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
        interpolation_mode: "LINEAR" or "NEAREST_NEIGHBOR" (see `sampling.nearest_indices`).
        sampling_mode: See `sampling`.
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
        result = linear_along(result, axis, size, sampling_mode)
    return result


@kernel("upsample_bilinear")
def upsample_bilinear(
    x: Tensor,
    scale_factor_height: Tensor | float = 1,
    scale_factor_width: Tensor | float = 1,
    align_corners: Tensor | bool = True,
    half_pixel_centers: Tensor | bool | None = None,
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
        raise MilError(
            "EDGE-MIL-030",
            f"op {getattr(op, 'name', '')!r} (upsample_bilinear)",
            wanted="align_corners or half_pixel_centers",
            got="both",
            hint="convert the model with one of the two",
        )
    modes = {(True, False): "STRICT_ALIGN_CORNERS", (False, True): "UNALIGN_CORNERS"}
    mode = modes.get((aligned, centered), "DEFAULT")
    height = _scaled(x.shape[-2], scale_factor_height)
    width = _scaled(x.shape[-1], scale_factor_width)
    return linear_along(linear_along(x, -2, height, mode), -1, width, mode)


@kernel("upsample_nearest_neighbor")
def upsample_nearest_neighbor(
    x: Tensor, scale_factor_height: Tensor | float = 1, scale_factor_width: Tensor | float = 1
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


def _scaled(size: int, factor: Tensor | float) -> int:
    """``floor(size * factor)``, multiplied in float32 as the op's type is inferred."""
    return int(torch.floor(torch.as_tensor(factor) * size).item())


def _nearest(x: Tensor, sizes: tuple[int, ...], mode: str) -> Tensor:
    for axis, count in zip(range(-len(sizes), 0), sizes, strict=True):
        x = x.index_select(axis, nearest_indices(x.shape[axis], count, mode))
    return x
