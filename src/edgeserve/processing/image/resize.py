"""resize/1 and center_crop/1: sizes and offsets, the work on an RGB image, and the way back.

Sizes and offsets are exact integer arithmetic. No float takes part, so every language gets the
same pixel grid; the rules stand in ``spec/processing.md``. The work is Pillow's: its resampling
is the definition of resize/1, and calling it is the only way to its exact result at its speed;
the order of the passes is ours. `ImageTransform` leads from places in a model's input back to
places in the upright image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.errors import InputError
from edgeserve.types.processing import CenterCrop, Resize

if TYPE_CHECKING:
    import PIL.Image

__all__ = [
    "MAX_PIXELS",
    "ImageTransform",
    "Size",
    "apply_image_step",
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
        _crop_start(size[0] - step.height, step.rounding == "half-even"),
        _crop_start(size[1] - step.width, step.rounding == "half-even"),
    )


def _crop_start(surplus: int, to_even: bool) -> int:
    # Padding always puts the odd pixel at the end; only cutting knows two habits.
    if surplus < 0:
        return -(-surplus // 2)
    return half_even(surplus, 2) if to_even else surplus // 2


def apply_image_step(step: Resize | CenterCrop, image: PIL.Image.Image) -> PIL.Image.Image:
    """Apply one step to an RGB picture; the picture given is never changed.

    Raises:
        InputError: EDGE-INPUT-008, the result would be too large to make.
    """
    return _resize(step, image) if isinstance(step, Resize) else _crop(step, image)


def _crop(step: CenterCrop, image: PIL.Image.Image) -> PIL.Image.Image:
    if (image.height, image.width) == (step.height, step.width):
        return image
    top, left = crop_origin(step, (image.height, image.width))
    return image.crop((left, top, left + step.width, top + step.height))  # zeros outside


def _resize(step: Resize, image: PIL.Image.Image) -> PIL.Image.Image:
    from PIL import Image

    old = (image.height, image.width)
    inner = resized(step, old)
    _check_size(step, old, inner)
    # One axis a call: which axis Pillow takes first depends on its version (12 and 13 differ).
    for height, width in (between_passes(old, inner), inner):
        if (height, width) != (image.height, image.width):
            image = image.resize((width, height), Image.Resampling[step.filter.upper()])
    if step.fit != "letterbox" or inner == (step.height, step.width):
        return image
    canvas = Image.new("RGB", (step.width, step.height), step.fill)
    top, left = letterbox_origin(step, inner)
    canvas.paste(image, (left, top))
    return canvas


def _check_size(step: Resize, old: Size, new: Size) -> None:
    # What stands between the passes is never larger than both (`between_passes`).
    if new[0] * new[1] > MAX_PIXELS:
        raise InputError(
            "EDGE-INPUT-008",
            f"picture of {old[1]} x {old[0]} pixels",
            wanted=f"one that {step.fit} resizing keeps below {MAX_PIXELS} pixels",
            got=f"{new[1]} x {new[0]}",
            hint="crop the picture before it is sent: it is too long and thin to be scaled up",
        )


class ImageTransform:
    """What resizing and cropping does to a picture of one size: ``x -> x * scale + shift``.

    Places are continuous: pixel i covers [i, i + 1). Exact but for the rounding of float64.

    Attributes:
        size: Height and width of the picture.
        end: Height and width of what the steps make of it.
    """

    def __init__(self, steps: Sequence[Resize | CenterCrop], size: Size) -> None:
        self.size = self.end = size
        self._scale, self._shift = np.ones(2), np.zeros(2)  # height, width
        for step in steps:
            if isinstance(step, CenterCrop):
                self._shift = self._shift - crop_origin(step, self.end)
                self.end = (step.height, step.width)
            else:
                self._resize(step)

    def _resize(self, step: Resize) -> None:
        inner = resized(step, self.end)
        ratio = np.array(inner) / self.end
        boxed = step.fit == "letterbox"
        self._scale = self._scale * ratio
        self._shift = self._shift * ratio + (letterbox_origin(step, inner) if boxed else (0, 0))
        self.end = (step.height, step.width) if boxed else inner

    def back(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes xyxy [n, 4] of the model's input as boxes of the picture, clipped to it: float64.

        What lies in a letterbox's borders ends at the edge of the picture.
        """
        scale, shift = np.tile(self._scale[::-1], 2), np.tile(self._shift[::-1], 2)
        height, width = self.size
        found = (np.asarray(boxes, np.float64) - shift) / scale
        return np.asarray(np.clip(found, 0, (width, height, width, height)))

    def seen(self, shape: Size) -> tuple[np.ndarray, np.ndarray]:
        """Where the picture's pixels lie in a map that the model made of it.

        Args:
            shape: Height and width of the map, which spans all that the steps made.

        Returns:
            For the centre of each row, and of each column, the map's row or column that it lies in:
            int64 [height] and [width]; -1 where the model did not see it.
        """
        found = []
        for axis in (0, 1):
            places = (np.arange(self.size[axis]) + 0.5) * self._scale[axis] + self._shift[axis]
            index = np.floor(places * (shape[axis] / self.end[axis])).astype(np.int64)
            found.append(np.where((index >= 0) & (index < shape[axis]), index, -1))
        return found[0], found[1]
