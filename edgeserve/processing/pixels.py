"""resize/1 and center_crop/1 on a Pillow picture in mode RGB.

The work is Pillow's: its resampling is the definition of resize/1, and calling it is the only way
to its exact result at its speed. Sizes, offsets and the order of the passes are ours
(`edgeserve.processing.geometry`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.errors import InputError
from edgeserve.processing.geometry import (
    MAX_PIXELS,
    Size,
    between_passes,
    crop_origin,
    letterbox_origin,
    resized,
)
from edgeserve.types.processing import CenterCrop, Resize

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["apply"]


def apply(step: Resize | CenterCrop, image: PIL.Image.Image) -> PIL.Image.Image:
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
