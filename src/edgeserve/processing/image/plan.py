"""How much memory a picture will take, told from its header before anything is decoded.

A few kilobytes may claim a picture that takes gigabytes, or a million rows of one pixel, which cost
more than pixels do. So the cost of the whole way is planned from width, height, mode and format:
what the decoder holds, conversions, turning, the passes and coefficients of a resize, the tensor.
What exceeds the limit is refused. The rule is written down in ``spec/processing.md``; its figures
were measured with Pillow, and rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.processing.image.headers import scans, too_costly
from edgeserve.types.steps import PixelStep, Size, held_bytes

if TYPE_CHECKING:
    import PIL.Image

#: Most bytes that one picture may take, the tensors of fixed size aside.
MOST_BYTES = 240 << 20
#: Most pixels that all scans of a JPEG may have together: each scan visits all of them again.
_MOST_SCANNED = 1_000_000_000
#: Bytes of a BMP of run lengths, for which Pillow has a slow decoder.
_MOST_RLE = 1 << 20
#: What a decoder holds beside the picture, in pictures.
_BESIDE = {"WEBP": 3.0, "TIFF": 1.0}
#: Coefficients of all blocks, of a JPEG whose scans are put together.
_COEFFICIENTS = 1.5
#: Words that stand in files whose metadata may say how the picture is turned.
_TURNED = (b"eXIf", b"exif", b"rientation")


def copies(image: PIL.Image.Image, turned: bool, data: bytes = b"") -> float:
    """How many pictures of 4 bytes a pixel are in memory at once while one is decoded.

    Args:
        image: Of which the header has been read.
        turned: Whether its metadata will turn it.
        data: The encoded picture; none for pixels.

    Raises:
        InputError: EDGE-INPUT-009, scans or run lengths would take too long.
    """
    from edgeserve.processing.steps.decode import SIXTEEN

    count = 1.0 + (image.mode != "RGB") + image.has_transparency_data
    count += image.mode in SIXTEEN
    count += _BESIDE.get(image.format or "", 0.0) if data else 0.0
    if image.format in ("JPEG", "MPO") and data and (passes := scans(data)) > 1:
        if passes * image.width * image.height > _MOST_SCANNED:
            got = f"{passes} scans of {image.width} x {image.height} pixels"
            raise too_costly(f"at most {_MOST_SCANNED:,} pixels in all scans", got)
        count += _COEFFICIENTS
    if getattr(image, "tile", None) and image.tile[0][0] == "bmp_rle" and len(data) > _MOST_RLE:
        raise too_costly(f"at most {_MOST_RLE:,} bytes of run lengths", f"a BMP of {len(data):,}")
    late = image.format == "PNG" and any(word in data for word in _TURNED)
    return count + (turned or late)


def way_bytes(size: Size, steps: Sequence[PixelStep], tensor: int) -> tuple[int, int]:
    """Most bytes of the way from a decoded picture to a tensor, and those that the tensor keeps.

    Args:
        size: Height and width of the picture, which is kept all the while and not counted.
        steps: On its way.
        tensor: Bytes that it takes for each pixel of the result.
    """
    most = current = 0
    for step in steps:
        most = max(most, current + step.peak_bytes(size))
        size = step.placement(size).size
        current = held_bytes(size)
    kept = size[0] * size[1] * tensor
    return max(most, current + kept), kept


def check_cost(size: Size, cost: float, fixed: int) -> None:
    """Refuse a picture whose way costs too much memory.

    Args:
        size: Its height and width.
        cost: Bytes of the whole way.
        fixed: Bytes of it that every picture costs.

    Raises:
        InputError: EDGE-INPUT-009.
    """
    if cost - fixed > MOST_BYTES:
        got = f"about {cost / (1 << 20):,.0f} MiB, for {size[1]} x {size[0]} pixels"
        wanted = f"at most {MOST_BYTES >> 20} MiB while it is decoded and resized"
        raise too_costly(wanted, got)
