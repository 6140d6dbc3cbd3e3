"""How much memory a picture will take, told from its header before anything is decoded.

A few kilobytes may claim a picture that takes gigabytes, or a million rows of one pixel, which cost
more than pixels do. So the cost of the whole way is planned from width, height, mode and format:
what the decoder holds, conversions, turning, the passes and coefficients of a resize, the tensor.
What exceeds the limit is refused. The rule is written down in ``spec/processing.md``; its figures
were measured with Pillow, and rounded up.

Decoders also take time for each block of a file's metadata, and a few megabytes hold a million
blocks, where a picture has a few dozen: blocks are counted before a decoder walks over them.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgeserve.errors import InputError
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
    tiles = getattr(image, "tile", None)
    if tiles and tiles[0][0] == "bmp_rle" and len(data) > _MOST_RLE:
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


#: Blocks of a file at most; of a PNG they hold the pixels too, 8 KiB each.
_MOST_BLOCKS = 65_536
#: Strips or tiles that a TIFF's pixels lie in at most.
_MOST_STRIPS = 65_536
_STRIPS = (273, 279, 324, 325)
#: A marker of a JPEG: bytes after FF that are neither data nor the restart of a decoder.
_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")
_ALONE, _SCAN, _END = (b"\x01", b"\xd8"), b"\xda", b"\xd9"
#: TIFF's byte orders, each with the formats of the first directory's offset, count and entries.
_ORDERS = {
    b"II*\0": ("<I", 4, "<H", "<HHI"),
    b"MM\0*": (">I", 4, ">H", ">HHI"),
    b"II+\0": ("<Q", 8, "<Q", "<HHQ"),
    b"MM\0+": (">Q", 8, ">Q", ">HHQ"),
}


def check_blocks(data: bytes) -> None:
    """Refuse a file with more blocks than any picture has.

    Raises:
        InputError: EDGE-INPUT-009.
    """
    walks = {b"\x89PNG": _chunks, b"\xff\xd8\xff": _markers}
    for start, walk in walks.items():
        blocks = walk(data) if data.startswith(start) else iter(())
        if next(itertools.islice(blocks, _MOST_BLOCKS, None), None) is not None:
            raise too_costly(f"at most {_MOST_BLOCKS:,} blocks", "a file of more")
    if any(tag in _STRIPS and count > _MOST_STRIPS for tag, _, count, _ in entries(data)):
        raise too_costly(f"at most {_MOST_STRIPS:,} strips or tiles", "a TIFF of more")


def scans(data: bytes) -> int:
    """How many scans a JPEG has; metadata, with the scans of its thumbnails, is passed over.

    Source: ITU-T T.81 (1992), annex B.
    """
    return sum(marker == _SCAN for marker in _markers(data))


def entries(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Tag, type, count and the place of the value of each entry in a TIFF's first directory.

    Source: TIFF 6.0, section 2; entries that the data cut off are left out.
    """
    if data[:4] not in _ORDERS:
        return
    offset, first, number, entry = _ORDERS[data[:4]]
    width = struct.calcsize(offset)
    try:
        (start,) = struct.unpack_from(offset, data, first)
        (count,) = struct.unpack_from(number, data, start)
        start += struct.calcsize(number)
        size = struct.calcsize(entry) + width
        for at in range(start, start + size * count, size):
            tag, kind, values = struct.unpack_from(entry, data, at)
            yield tag, kind, values, at + size - width
    except struct.error:
        return


def _markers(data: bytes) -> Iterator[bytes]:
    at = 2
    while (found := _MARKER.search(data, at)) and found[1] != _END:
        at = found.end()
        if found[1] not in _ALONE:
            at += int.from_bytes(data[at : at + 2], "big")
        yield found[1]
        if found[1] == _SCAN and data.find(b"\xff\xda", at) < 0:
            return  # nothing but its data follows, which is long


def _chunks(data: bytes) -> Iterator[int]:
    at = 8
    while at < len(data):
        yield at
        at += 12 + int.from_bytes(data[at : at + 4], "big")


def too_costly(wanted: str, got: str) -> InputError:
    """The error for a picture that would take too much memory or time."""
    hint = "scale it down and save it anew before it is sent: models look at few hundred pixels"
    return InputError("EDGE-INPUT-009", "picture", wanted=wanted, got=got, hint=hint)
