"""Picture files written byte by byte, so that every machine writes the same ones.

A compressor's output depends on its version; these files store their samples uncompressed. Only
what the cases need is here.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

__all__ = ["bmp", "exif", "png", "tiff"]

_PNG_KINDS = {"grey": 0, "rgb": 2, "palette": 3, "grey+alpha": 4, "rgb+alpha": 6}
_TIFF_SHORT, _TIFF_LONG = 3, 4


def png(
    samples: np.ndarray,
    kind: str = "rgb",
    bits: int = 8,
    *,
    palette: np.ndarray | None = None,
    transparency: bytes = b"",
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """PNG of ``samples`` [height, width] or [height, width, channels], values below ``2**bits``.

    ``transparency`` is the tRNS chunk's content; ``extra`` are further chunks before the pixels.
    """
    height, width = samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, bits, _PNG_KINDS[kind], 0, 0, 0)
    parts = [_chunk(b"IHDR", header)]
    if palette is not None:
        parts.append(_chunk(b"PLTE", palette.astype(np.uint8).tobytes()))
    if transparency:
        parts.append(_chunk(b"tRNS", transparency))
    parts += [_chunk(name, content) for name, content in extra]
    rows = b"".join(b"\0" + _row(row, bits) for row in samples.reshape(height, -1))
    parts += [_chunk(b"IDAT", _stored(rows)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def _row(row: np.ndarray, bits: int) -> bytes:
    if bits == 16:
        return row.astype(">u2").tobytes()
    if bits == 8:
        return row.astype(np.uint8).tobytes()
    planes = (row.astype(np.uint8)[:, None] >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(planes.reshape(-1)).tobytes()


def _stored(data: bytes) -> bytes:
    """A zlib stream of stored blocks."""
    blocks = [data[at : at + 65_535] for at in range(0, len(data), 65_535)]
    out = b"\x78\x01"
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        out += struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block
    return out + struct.pack(">I", zlib.adler32(data))


def exif(
    value: int, order: str = "<", *, kind: int = _TIFF_SHORT, count: int = 1, entries: int = 2
) -> bytes:
    """An EXIF block with a resolution unit and an orientation; ``entries`` is what it claims."""
    fields = [(0x0112, kind, count, value), (0x0128, _TIFF_SHORT, 1, 2)]
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    body = b"".join(_entry(order, *field) for field in fields)
    return head + struct.pack(order + "H", entries) + body + bytes(4)


def _entry(order: str, tag: int, kind: int, count: int, value: int) -> bytes:
    form = {1: "B3x", _TIFF_SHORT: "H2x", _TIFF_LONG: "I"}.get(kind, "I")
    return struct.pack(order + "HHI" + form, tag, kind, count, value)


def tiff(
    samples: np.ndarray, photometric: int, order: str = "<", orientation: int | None = None
) -> bytes:
    """Uncompressed TIFF of one strip; sample format and bits follow from the dtype.

    ``photometric``: 1 grey, 2 RGB, 5 CMYK.
    """
    height, width = samples.shape[:2]
    channels = samples.size // (height * width)
    data = samples.astype(samples.dtype.newbyteorder(order)).tobytes()
    bits = samples.dtype.itemsize * 8
    form = {"u": 1, "i": 2, "f": 3}[samples.dtype.kind]
    after = 8 + len(data) + len(data) % 2
    fields = [
        (256, _TIFF_LONG, 1, width),
        (257, _TIFF_LONG, 1, height),
        (258, _TIFF_SHORT, channels, bits),
        (259, _TIFF_SHORT, 1, 1),
        (262, _TIFF_SHORT, 1, photometric),
        (273, _TIFF_LONG, 1, 8),
        (277, _TIFF_SHORT, 1, channels),
        (278, _TIFF_LONG, 1, height),
        (279, _TIFF_LONG, 1, len(data)),
        (339, _TIFF_SHORT, channels, form),
    ]
    if orientation:
        fields.append((0x0112, _TIFF_SHORT, 1, orientation))
    fields.sort()
    arrays, directory = b"", b""
    start = after + 2 + 12 * len(fields) + 4
    for tag, kind, count, value in fields:
        if count > 2:  # does not fit into the entry: the array stands behind the directory
            directory += struct.pack(order + "HHII", tag, kind, count, start + len(arrays))
            arrays += struct.pack(order + f"{count}H", *[value] * count)
        else:
            directory += _entry(order, tag, kind, count, value)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", after)
    table = struct.pack(order + "H", len(fields)) + directory + bytes(4) + arrays
    return head + data + bytes(len(data) % 2) + table


def bmp(samples: np.ndarray) -> bytes:
    """24-bit BMP of uint8 RGB [height, width, 3]."""
    height, width = samples.shape[:2]
    pad = bytes(-width * 3 % 4)
    rows = b"".join(row[:, ::-1].astype(np.uint8).tobytes() + pad for row in samples[::-1])
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + info + rows
