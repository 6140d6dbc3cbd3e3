"""The blocks of an encoded picture, counted before a decoder walks over them.

Decoders take time for each block of a file's metadata, some of them for each pair of blocks, and a
few megabytes hold a million blocks. A picture has a few dozen.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator

from edgeserve.errors import InputError

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
