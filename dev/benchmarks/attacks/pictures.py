"""Pictures that are small as files and large as pixels, or the other way round, in every format."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies

_HOUR = "X-Request-Deadline-Ms: 3600000"
_PNG = b"\x89PNG\r\n\x1a\n"
_MB = 1 << 20


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def _packed(count: int) -> bytes:
    """So many zeros, packed, without holding them."""
    packer, piece = zlib.compressobj(9), bytes(1 << 20)
    whole = [packer.compress(piece[: min(1 << 20, count - i)]) for i in range(0, count, 1 << 20)]
    return b"".join(whole) + packer.flush()


def png(width: int, height: int, depth: int = 8, color: int = 0, extra: bytes = b"") -> bytes:
    """A black picture; ``color`` 0: grey, 2: RGB, 6: RGBA."""
    samples = {0: 1, 2: 3, 6: 4}[color]
    row = 1 + (width * samples * depth + 7) // 8
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", _packed(row * height))
    return _PNG + parts + _chunk(b"IEND", b"")


def _pillow(kind: str, width: int, height: int, mode: str = "L", **options: object) -> bytes:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, kind, **options)
    return out.getvalue()


def _frames(kind: str, count: int, side: int) -> bytes:
    from PIL import Image

    frames = [Image.new("L", (side, side), i % 256) for i in range(count)]
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:])
    return out.getvalue()


def _resized(data: bytes, width: int, height: int) -> bytes:
    """A GIF whose screen claims another size."""
    return data[:6] + struct.pack("<HH", width, height) + data[10:]


def _claims(width: int, height: int) -> bytes:
    """A PNG whose header claims a size that its pixels do not have."""
    data = png(8, 8)
    header = struct.pack(">II", width, height) + data[24:29]
    return data[:8] + _chunk(b"IHDR", header) + data[33:]


def _webp(width: int, height: int) -> bytes:
    """A lossless WebP of one colour, which is equally long at any size."""
    data = _pillow("WEBP", 8, 8, "RGB", lossless=True)
    bits = int.from_bytes(data[21:25], "little") >> 28 << 28 | (height - 1) << 14 | (width - 1)
    return data[:21] + bits.to_bytes(4, "little") + data[25:]


def _tiff(width: int, height: int, strips: int) -> bytes:
    """A little-endian TIFF of one bit a pixel whose strips all are the same few bytes."""
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 1), (259, 3, 1, 32773)]
    entries += [(262, 3, 1, 1), (277, 3, 1, 1), (278, 4, 1, max(1, height // strips))]
    start = 8 + 2 + 12 * (len(entries) + 2) + 4
    entries += [(273, 4, strips, start), (279, 4, strips, start + 4 * strips)]
    table = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    lists = struct.pack("<I", start + 8 * strips) * strips + struct.pack("<I", 2) * strips
    body = struct.pack("<H", len(entries)) + table + bytes(4) + lists + b"\x81\0"
    return b"II*\0" + struct.pack("<I", 8) + body


def _tiff_loop() -> bytes:
    """Directories that lead to each other."""
    one = struct.pack("<H", 1) + struct.pack("<HHII", 256, 4, 1, 1)
    return b"II*\0\x08\0\0\0" + one + struct.pack("<I", 26) + one + struct.pack("<I", 8)


def _text(kind: bytes, before: bytes) -> Callable[[], bytes]:
    """A small PNG with packed texts of 60 MB each."""
    return lambda: png(8, 8, extra=_chunk(kind, before + _packed(60 * _MB)) * 8)


def _scans() -> bytes:
    """A progressive JPEG whose last scan stands there a thousand times."""
    data = _pillow("JPEG", 4000, 4000, progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * 1000 + b"\xff\xd9"


_PICTURES: dict[str, Callable[[], bytes]] = {
    "PNG 1 x 178,956,970": lambda: png(1, 178_956_970),
    "PNG 178,956,970 x 1": lambda: png(178_956_970, 1),
    "PNG 13,000 x 13,700, flat": lambda: png(13_000, 13_700),
    "PNG 1 bit, 13,000 x 13,700": lambda: png(13_000, 13_700, 1),
    "PNG RGBA of 16 bits, 9,000 x 9,000": lambda: png(9_000, 9_000, 16, 6),
    "PNG 3 x 4,000,000": lambda: png(3, 4_000_000, 8, 2),
    "PNG beyond the limit of pixels": lambda: _claims(65_535, 65_535),
    "PNG 2^31 x 2^31": lambda: _claims(2**31 - 1, 2**31 - 1),
    "PNG with packed texts": _text(b"zTXt", b"a\0\0"),
    "PNG with international texts": _text(b"iTXt", b"a\0\1\0\0\0"),
    "PNG with a packed profile": _text(b"iCCP", b"a\0\0"),
    "PNG of 400,000 chunks": lambda: png(8, 8, extra=_chunk(b"tEXt", b"a\0b") * 400_000),
    "JPEG 65,500 x 1": lambda: _pillow("JPEG", 65_500, 1),
    "JPEG 1 x 65,500": lambda: _pillow("JPEG", 1, 65_500),
    "JPEG 13,000 x 13,700": lambda: _pillow("JPEG", 13_000, 13_700),
    "JPEG of 1000 scans": _scans,
    "GIF 65,535 x 65,535 of one pixel": lambda: _resized(_pillow("GIF", 1, 1), 65_535, 65_535),
    "GIF 13,000 x 13,700": lambda: _resized(_pillow("GIF", 8, 8), 13_000, 13_700),
    "GIF of 3000 frames": lambda: _frames("GIF", 3000, 64),
    "TIFF 13,000 x 13,700 of one strip": lambda: _tiff(13_000, 13_700, 1),
    "TIFF 1 x 170,000,000": lambda: _tiff(1, 170_000_000, 1),
    "TIFF of 1,000,000 strips": lambda: _tiff(100, 1_000_000, 1_000_000),
    "TIFF whose directories loop": _tiff_loop,
    "WebP 16,384 x 16,384": lambda: _webp(16_384, 16_384),
    "WebP 13,000 x 13,700": lambda: _webp(13_000, 13_700),
    "WebP 1 x 16,384": lambda: _webp(1, 16_384),
    "WebP of 300 frames": lambda: _frames("WEBP", 300, 64),
    "BMP that lies about its size": lambda: (
        b"BM" + struct.pack("<IIIIiiHHIIiiII", 99, 0, 54, 40, 60_000, 60_000, 1, 24, *[0] * 6)
    ),
    "PPM that lies about its size": lambda: b"P6\n13000 13700\n255\n" + bytes(100),
    "60 MB that are no picture": lambda: b"\xff" * (60 * _MB),
}


def _add(name: str, make: Callable[[], bytes]) -> None:
    @attack(f"picture: {name}")
    def run(target: Target, tally: Tally) -> None:
        bodies(target, tally, target.predict, make(), _HOUR)


for _name, _make in _PICTURES.items():
    _add(_name, _make)


@attack("picture: PNG flat, 50 connections")
def many(target: Target, tally: Tally) -> None:
    bodies(target, tally, target.predict, png(13_000, 13_700), _HOUR, count=50)


@attack("picture: 100 large ones in one request")
def batch(target: Target, tally: Tally) -> None:
    """Raw inputs in base64, a hundred large pictures of 21 KB each."""
    import base64

    data = base64.b64encode(png(10_000, 10_000)).decode()
    asked = '{"inputs":[{"name":"raw","shape":[100],"datatype":"BYTES","data":["%s"]}]}'
    body = (asked % '","'.join([data] * 100)).encode()
    bodies(target, tally, target.infer, body, _HOUR)
