"""Sizes and offsets of resize/1 and center_crop/1, in exact integer arithmetic.

No float takes part, so every language gets the same pixel grid. The rules stand in
``docs/processing.md``.
"""

from __future__ import annotations

from edgeserve.types.processing import CenterCrop, Resize

__all__ = [
    "MAX_PIXELS",
    "Size",
    "between_passes",
    "crop_origin",
    "half_even",
    "letterbox_origin",
    "resized",
]

#: Height and width in pixels.
Size = tuple[int, int]

#: No step makes a picture with more pixels than this.
MAX_PIXELS = 178_956_970


def half_even(numerator: int, denominator: int) -> int:
    """``numerator / denominator`` rounded to the nearest integer, halves to the even one."""
    quotient, rest = divmod(numerator, denominator)
    up = 2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1)
    return quotient + up


def resized(step: Resize, size: Size) -> Size:
    """Size that a picture has after resampling, before a letterbox's borders are added."""
    height, width = size
    if step.fit == "exact":
        return step.height, step.width
    if step.fit == "shortest-edge":
        target = min(step.height, step.width)
        if width <= height:
            return target * height // width, target
        return target, target * width // height
    if step.width * height <= step.height * width:
        return max(1, half_even(height * step.width, width)), step.width
    return step.height, max(1, half_even(width * step.height, height))


def between_passes(old: Size, new: Size) -> Size:
    """Size after the first of the two resampling passes, each of which changes one axis.

    Columns are resampled first, unless the height loses more than twice the pixels that the width
    does: Pillow 13's rule. Each pass rounds to 8 bits, so the order shows in the result. Either way
    the half-resampled picture has no more pixels than the larger of ``old`` and ``new``.
    """
    (height, width), (new_height, new_width) = old, new
    rows_first = new_height < height and height - new_height > 2 * (width - new_width)
    return (new_height, width) if rows_first else (height, new_width)


def letterbox_origin(step: Resize, inner: Size) -> Size:
    """Row and column at which the resampled picture lies in the letterbox."""
    return (step.height - inner[0]) // 2, (step.width - inner[1]) // 2


def crop_origin(step: CenterCrop, size: Size) -> Size:
    """Row and column of the picture at which the crop starts; negative where zeros come first."""
    return (
        _start(size[0] - step.height, step.rounding == "half-even"),
        _start(size[1] - step.width, step.rounding == "half-even"),
    )


def _start(surplus: int, to_even: bool) -> int:
    # Padding always puts the odd pixel at the end; only cutting knows two habits.
    if surplus < 0:
        return -(-surplus // 2)
    return half_even(surplus, 2) if to_even else surplus // 2
