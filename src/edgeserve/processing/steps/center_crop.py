"""center_crop/1: the middle of an RGB image, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgeserve.processing.steps.resize import half_even
from edgeserve.types.steps import PixelStep, Placement, Size

if TYPE_CHECKING:
    import PIL.Image


Rounding = Literal["floor", "half-even"]


class CenterCrop(PixelStep, frozen=True, tag_field="step", tag="center_crop/1"):
    """Cut the middle ``height`` x ``width`` out of HWC uint8; smaller ones get zeros around.

    Attributes:
        height: Height of the result in pixels.
        width: Width of the result in pixels.
        rounding: Where the window starts when an odd number of pixels is cut off: "floor"
            (Hugging Face) or "half-even" (torchvision, timm).
    """

    height: int
    width: int
    rounding: Rounding = "floor"

    def __post_init__(self) -> None:
        if not (0 < self.height <= 65_535 and 0 < self.width <= 65_535):
            raise ValueError(f"center_crop to {self.height} x {self.width} is outside 1..65535")

    def out_size(self, size: Size | None) -> Size | None:
        """See `PixelStep.out_size`."""
        return self.height, self.width

    def placement(self, size: Size) -> Placement:
        """See `PixelStep.placement`."""
        top, left = self.origin(size)
        return Placement((1.0, 1.0), (-top, -left), (self.height, self.width))

    def apply(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """See `PixelStep.apply`."""
        if (image.height, image.width) == (self.height, self.width):
            return image
        top, left = self.origin((image.height, image.width))
        return image.crop((left, top, left + self.width, top + self.height))  # zeros outside

    def origin(self, size: Size) -> Size:
        """Row and column of the picture where the crop starts; negative where zeros come first."""
        even = self.rounding == "half-even"
        return _crop_start(size[0] - self.height, even), _crop_start(size[1] - self.width, even)


def _crop_start(surplus: int, to_even: bool) -> int:
    # Padding always puts the odd pixel at the end; only cutting knows two habits.
    if surplus < 0:
        return -(-surplus // 2)
    return half_even(surplus, 2) if to_even else surplus // 2
