"""resize/1: sizes and offsets, the work on an RGB image, and the way back.

Sizes and offsets are exact integer arithmetic. No float takes part, so every language gets the same
pixel grid; the rules stand in ``spec/processing.md``. The work is Pillow's: its resampling is the
definition of resize/1, and calling it is the only way to its exact result at its speed; the order
of the passes is ours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edgeserve.errors import InputError
from edgeserve.processing.image.plan import too_costly
from edgeserve.types.steps import (
    MAX_PIXELS,
    Color,
    PixelStep,
    Placement,
    Size,
    check_color,
    held_bytes,
)

if TYPE_CHECKING:
    import PIL.Image


Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]
Fit = Literal["exact", "shortest-edge", "letterbox"]
#: Pixels that all pixels of a pass's result may look at, and how many of them one costs besides.
_MOST_LOOKS, _LOOKS = 500_000_000, 16
#: Pixels on each side that a filter looks at, at the scale 1.
_SUPPORTS: dict[Filter, int] = {"nearest": 0, "bilinear": 1, "bicubic": 2, "lanczos": 3}


def half_even(numerator: int, denominator: int) -> int:
    """``numerator / denominator`` rounded to the nearest integer, halves to the even one."""
    quotient, rest = divmod(numerator, denominator)
    up = 2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1)
    return quotient + up


def between_passes(old: Size, new: Size) -> Size:
    """Size after the first of the two resampling passes, each of which changes one axis.

    Columns are resampled first, unless the height loses more than twice the pixels that the width
    does: Pillow 13's rule. Each pass rounds to 8 bits, so the order shows in the result. Either way
    the half-resampled picture has no more pixels than the larger of ``old`` and ``new``.
    """
    (height, width), (new_height, new_width) = old, new
    rows_first = new_height < height and height - new_height > 2 * (width - new_width)
    return (new_height, width) if rows_first else (height, new_width)


class Resize(PixelStep, frozen=True, tag_field="step", tag="resize/1"):
    """Resample HWC uint8 with Pillow's exact result.

    Attributes:
        height: Target height in pixels.
        width: Target width in pixels; for "shortest-edge" the target of the shorter side is
            ``min(height, width)``.
        fit: "exact" stretches; "shortest-edge" keeps the aspect ratio so that the shorter side
            fits; "letterbox" keeps the aspect ratio inside height x width and fills the rest.
        filter: Resampling kernel.
        fill: RGB of the letterbox's borders.
    """

    height: int
    width: int
    fit: Fit = "exact"
    filter: Filter = "bilinear"
    fill: Color = (114, 114, 114)

    def __post_init__(self) -> None:
        check_color("fill", self.fill)
        if not (0 < self.height <= 65_535 and 0 < self.width <= 65_535):
            raise ValueError(f"resize to {self.height} x {self.width} is outside 1..65535")

    def out_size(self, size: Size | None) -> Size | None:
        """See `PixelStep.out_size`."""
        if self.fit == "shortest-edge":
            return self.inner_size(size) if size else None
        return self.height, self.width

    def placement(self, size: Size) -> Placement:
        """See `PixelStep.placement`."""
        inner = self.inner_size(size)
        shift = self.origin(inner) if self.fit == "letterbox" else (0, 0)
        end = (self.height, self.width) if self.fit == "letterbox" else inner
        return Placement((inner[0] / size[0], inner[1] / size[1]), shift, end)

    def peak_bytes(self, size: Size) -> int:
        """See `PixelStep.peak_bytes`: both passes with their coefficients, and a letterbox.

        Raises:
            InputError: EDGE-INPUT-008, the result would be too large to make, -009, it would take
                too long.
        """
        inner = self.inner_size(size)
        _check_size(self, size, inner)
        between = between_passes(size, inner)
        canvas = held_bytes((self.height, self.width)) if self.fit == "letterbox" else 0
        return max(
            held_bytes(between) + self._coefficients(size, between),
            held_bytes(between) + held_bytes(inner) + self._coefficients(between, inner),
            held_bytes(inner) + canvas,
        )

    def _coefficients(self, old: Size, new: Size) -> int:
        """Bytes of a pass: 8 for each pixel that a row or column of the result looks at."""
        support, total = _SUPPORTS[self.filter], 0
        for given, made in zip(old, new, strict=True):
            if given != made and support:
                looks = 2 * math.ceil(support * max(1.0, given / made)) + 1
                total += 8 * made * looks
                if new[0] * new[1] * (looks + _LOOKS) > _MOST_LOOKS:
                    got = f"{given} pixels to {made} in a picture of {new[1]} x {new[0]}"
                    raise too_costly(f"at most {_MOST_LOOKS:,} pixels looked at", got)
        return total

    def apply(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """See `PixelStep.apply`.

        Raises:
            InputError: EDGE-INPUT-008, the result would be too large to make.
        """
        from PIL import Image

        old = (image.height, image.width)
        inner = self.inner_size(old)
        _check_size(self, old, inner)
        # One axis a call: which axis Pillow takes first depends on its version (12 and 13 differ).
        for height, width in (between_passes(old, inner), inner):
            if (height, width) != (image.height, image.width):
                image = image.resize((width, height), Image.Resampling[self.filter.upper()])
        if self.fit != "letterbox" or inner == (self.height, self.width):
            return image
        canvas = Image.new("RGB", (self.width, self.height), self.fill)
        top, left = self.origin(inner)
        canvas.paste(image, (left, top))
        return canvas

    def inner_size(self, size: Size) -> Size:
        """Size that a picture has after resampling, before a letterbox's borders are added."""
        height, width = size
        if self.fit == "exact":
            return self.height, self.width
        if self.fit == "shortest-edge":
            target = min(self.height, self.width)
            if width <= height:
                return target * height // width, target
            return target, target * width // height
        if self.width * height <= self.height * width:
            return max(1, half_even(height * self.width, width)), self.width
        return self.height, max(1, half_even(width * self.height, height))

    def origin(self, inner: Size) -> Size:
        """Row and column at which the resampled picture lies in the letterbox."""
        return (self.height - inner[0]) // 2, (self.width - inner[1]) // 2


def _check_size(step: Resize, old: Size, new: Size) -> None:
    # What stands between the passes is never larger than both (`between_passes`).
    if new[0] * new[1] > MAX_PIXELS:
        where = f"picture of {old[1]} x {old[0]} pixels"
        wanted = f"one that {step.fit} resizing keeps below {MAX_PIXELS} pixels"
        got = f"{new[1]} x {new[0]}"
        hint = "crop the picture before it is sent: it is too long and thin to be scaled up"
        raise InputError("EDGE-INPUT-008", where, wanted=wanted, got=got, hint=hint)
