"""The input pictures of the cases: bytes, and the 8-bit pixels that they hold.

The pixels of a picture written here follow from its samples by arithmetic, not from a decoder.
Pictures that only a library can write (JPEG, WebP, GIF, APNG) are made once, committed, and from
then on taken as they are; their pixels are Pillow's.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from encoders import bmp, exif, png, tiff
from PIL import Image

__all__ = ["Picture", "given", "opened", "upright", "written"]


class Picture(NamedTuple):
    """File name and content, and what decode/1 has to find in it.

    ``rgb`` uint8 [height, width, 3] as stored, None where the picture must be refused; ``alpha``
    uint8 [height, width], None where nothing is transparent; ``turn`` the orientation 1..8.
    """

    name: str
    data: bytes
    rgb: np.ndarray | None
    alpha: np.ndarray | None = None
    turn: int = 1


def scene(height: int, width: int, channels: int = 3, top: int = 255) -> np.ndarray:
    """A picture with slopes, hard edges at both ends of the range, and fine structure."""
    y, x, c = np.meshgrid(*map(np.arange, (height, width, channels)), indexing="ij")
    slopes = (x * (5 + 2 * c) + y * (3 + 4 * c) + x * y // 3) % (top + 1)
    edges = np.where((x // 3 + y // 5 + c) % 2, top, 0)
    mixed = np.where((x // 8 + y // 8) % 3 == 0, edges, slopes)
    return mixed.astype(np.uint16 if top > 255 else np.uint8)


def grey3(grey: np.ndarray) -> np.ndarray:
    """Grey to RGB."""
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)


def upright(picture: Picture, exif: bool, background: tuple[int, int, int]) -> np.ndarray:
    """RGB of the upright picture over a background (TIFF 6.0, section 8 for the orientations)."""
    assert picture.rgb is not None
    rgb = picture.rgb
    if picture.alpha is not None:
        # (color * alpha + background * (255 - alpha)) / 255, half up.
        alpha = picture.alpha.astype(np.int64)[..., None]
        exact = rgb.astype(np.int64) * alpha + np.array(background) * (255 - alpha)
        rgb = ((2 * exact + 255) // 510).astype(np.uint8)
    turn = picture.turn if exif else 1
    if turn >= 5:
        rgb = rgb.transpose(1, 0, 2)
    flips = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
    rows, columns = flips.get(turn, (1, 1))
    return np.ascontiguousarray(rgb[::rows, ::columns])


def written() -> Iterator[Picture]:
    """All pictures that are written byte by byte."""
    yield from _plain()
    yield from _greys()
    yield from _palettes()
    yield from _transparent()
    yield from _oriented()
    yield from _tiffs()
    yield from _refused()


def _plain() -> Iterator[Picture]:
    sizes = {
        "photo": (47, 61),
        "upright": (53, 40),
        "pixel": (1, 1),
        "row": (1, 40),
        "column": (37, 1),
        "two": (2, 2),
        "wide": (9, 160),
        "tall": (160, 9),
        "square": (32, 32),
        "small": (11, 14),
    }
    for name, (height, width) in sizes.items():
        rgb = scene(height, width)
        yield Picture(f"{name}.png", png(rgb), rgb)
    y, x = np.mgrid[:29, :33]
    checker = grey3(np.where((x + y) % 2, 255, 0))
    yield Picture("checker.png", png(checker), checker)
    small = scene(11, 14)
    yield Picture("bmp.bmp", bmp(small), small)
    deep = scene(9, 12, top=65_535)
    yield Picture("rgb16.png", png(deep, bits=16), (deep >> 8).astype(np.uint8))


def _greys() -> Iterator[Picture]:
    for bits in (1, 2, 4, 8):
        top = 2**bits - 1
        grey = scene(10, 13, 1, top)[..., 0]
        rgb = grey3(grey * (255 // top))
        yield Picture(f"grey{bits}.png", png(grey, "grey", bits), rgb)
        key = struct.pack(">H", top // 2)
        clear = np.where(grey == top // 2, 0, 255)
        data = png(grey, "grey", bits, transparency=key)
        yield Picture(f"grey{bits}-key.png", data, rgb, clear)
    deep = scene(10, 13, 1, 65_535)[..., 0]
    deep[3, 4:8] = (255, 256, 32_767, 32_768)
    rgb = grey3(deep >> 8)
    yield Picture("grey16.png", png(deep, "grey", 16), rgb)
    clear = np.where(deep == deep[3, 6], 0, 255)
    data = png(deep, "grey", 16, transparency=struct.pack(">H", deep[3, 6]))
    yield Picture("grey16-key.png", data, rgb, clear)


def _palettes() -> Iterator[Picture]:
    for bits in (1, 2, 4, 8):
        colors = scene(2**bits, 1)[:, 0]
        index = scene(10, 13, 1, 2**bits - 1)[..., 0]
        data = png(index, "palette", bits, palette=colors)
        yield Picture(f"palette{bits}.png", data, colors[index])
    alphas = np.arange(256, dtype=np.uint8)[::-1].copy()
    data = png(index, "palette", palette=colors, transparency=alphas.tobytes())
    yield Picture("palette-alphas.png", data, colors[index], alphas[index])
    one = np.where(np.arange(256) == index[2, 3], 0, 255).astype(np.uint8)
    data = png(index, "palette", palette=colors, transparency=one.tobytes())
    yield Picture("palette-one-clear.png", data, colors[index], one[index])


def _transparent() -> Iterator[Picture]:
    # Every alpha against many colors: 256 columns, one an alpha.
    rgb = scene(6, 256)
    alpha = np.tile(np.arange(256, dtype=np.uint8), (6, 1))
    data = png(np.dstack([rgb, alpha]), "rgb+alpha")
    yield Picture("alpha.png", data, rgb, alpha)
    grey = scene(10, 13, 2)
    data = png(grey, "grey+alpha")
    yield Picture("grey-alpha.png", data, grey3(grey[..., 0]), grey[..., 1])
    deep = scene(10, 13, 4, 65_535)
    high = (deep >> 8).astype(np.uint8)
    data = png(deep, "rgb+alpha", 16)
    yield Picture("alpha16.png", data, high[..., :3], high[..., 3])
    data = png(deep[..., 2:], "grey+alpha", 16)
    yield Picture("grey-alpha16.png", data, grey3(high[..., 2]), high[..., 3])
    small = scene(11, 14)
    clear = np.where((small == small[4, 5]).all(axis=2), 0, 255)
    data = png(small, transparency=small[4, 5].astype(">u2").tobytes())
    yield Picture("rgb-key.png", data, small, clear)


def _oriented() -> Iterator[Picture]:
    rgb = scene(7, 10)

    def chunk(name: str, block: bytes, value: int = 1, xmp: int | None = None) -> Picture:
        extra = [(b"eXIf", block)] if block else []
        if xmp is not None:
            text = f'<x:xmpmeta><r tiff:Orientation="{xmp}"/></x:xmpmeta>'.encode()
            extra.append((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + text))
        return Picture(f"{name}.png", png(rgb, extra=tuple(extra)), rgb, turn=value)

    for value in range(1, 9):
        yield chunk(f"exif-{value}", exif(value), value)
    yield chunk("exif-big-endian", exif(6, ">"), 6)
    yield chunk("exif-long", exif(8, kind=4), 8)
    yield chunk("exif-byte", exif(3, kind=1), 3)
    yield chunk("exif-0", exif(0))
    yield chunk("exif-9", exif(9))
    yield chunk("exif-ascii", exif(6, kind=2))
    yield chunk("exif-two-values", exif(6, count=2))
    yield chunk("exif-no-header", b"nonsense" * 4)
    yield chunk("exif-too-short", exif(6)[:11])
    yield chunk("exif-cut", exif(6)[:24], 6)
    yield chunk("exif-too-many-entries", exif(6, entries=40), 6)
    yield chunk("exif-far-directory", exif(6)[:4] + b"\xff\xff\xff\x7f" + exif(6)[8:])
    yield chunk("xmp-6", b"", 6, xmp=6)
    yield chunk("xmp-0", b"", xmp=0)
    yield chunk("exif-1-xmp-6", exif(1), 1, xmp=6)


def _tiffs() -> Iterator[Picture]:
    small = scene(11, 14)
    yield Picture("rgb.tiff", tiff(small, 2), small)
    # TIFF's orientation is part of the format: applied even where EXIF is not asked for.
    turned = upright(Picture("", b"", small, turn=6), True, (0, 0, 0))
    yield Picture("oriented.tiff", tiff(small, 2, orientation=6), turned)
    deep = scene(10, 13, 1, 65_535)[..., 0]
    yield Picture("grey16.tiff", tiff(deep, 1), grey3(deep >> 8))
    yield Picture("grey16-big-endian.tiff", tiff(deep, 1, ">"), grey3(deep >> 8))
    # Every ink against every black, so that the formula is pinned down.
    ink, black = np.meshgrid(np.arange(0, 256, 3), np.arange(0, 256, 5))
    cmyk = np.dstack([ink, 255 - ink, (ink * 2) % 256, black]).astype(np.uint8)
    yield Picture("cmyk.tiff", tiff(cmyk, 5), inks(cmyk))


def inks(cmyk: np.ndarray) -> np.ndarray:
    """CMYK (0 = no ink) to RGB: paper is 255 - K, less C * paper / 255 rounded half up."""
    paper = 255 - cmyk[..., 3:].astype(np.int64)
    taken = (2 * cmyk[..., :3].astype(np.int64) * paper + 255) // 510
    return np.clip(paper - taken, 0, 255).astype(np.uint8)


def _refused() -> Iterator[Picture]:
    small = scene(11, 14)
    whole = png(small)
    middle = whole.index(b"IDAT") + 200
    flipped = bytearray(whole)
    flipped[middle] ^= 0x10

    def claimed(width: int, height: int, bits: int = 8, kind: int = 2) -> bytes:
        """The same picture, whose header lies about its size, and maybe about its pixels."""
        header = b"IHDR" + struct.pack(">IIBB", width, height, bits, kind) + whole[26:29]
        return whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]

    key = small[4, 5].astype(">u2").tobytes()
    refused = {
        "empty.png": b"",
        "text.png": b"this is not a picture\n" * 3,
        "page.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
        "phone.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>',
        "cut-header.png": whole[:20],
        "cut-pixels.png": whole[: middle + 20],
        "flipped-bit.png": bytes(flipped),
        "huge.png": claimed(60_000, 60_000),
        "thin.png": claimed(1, 20_000_000),
        "thin1.png": claimed(1, 178_956_970, 1, 0),
        "flat.png": claimed(70_000_000, 1),
        "large.png": claimed(8_000, 8_000),
        "large-grey.png": claimed(6_000, 6_000, kind=0),
        "large-alpha.png": claimed(4_700, 4_700, kind=6),
        "large-grey16.png": claimed(4_700, 4_700, 16, 0),
        "long.png": claimed(24_000_000, 1),
        "rgb16-key.png": png(scene(9, 12, top=65_535), bits=16, transparency=key),
        "float.tiff": tiff(scene(5, 6, 1)[..., 0].astype(np.float32), 1),
        "int32.tiff": tiff(scene(5, 6, 1)[..., 0].astype(np.int32), 1),
    }
    yield from (Picture(name, data, None) for name, data in refused.items())


def given() -> dict[str, Callable[[], bytes]]:
    """Pictures that a library writes: how each was made, the first time."""
    photo = Image.fromarray(scene(24, 31))
    soft = photo.resize((48, 36), Image.Resampling.BICUBIC)
    frames = [Image.fromarray(scene(12, 15) ^ np.uint8(n * 85)) for n in range(3)]
    alpha = Image.fromarray(np.dstack([scene(12, 15), scene(12, 15, 1)]))
    ink = Image.fromarray(np.asarray(soft.convert("CMYK")) // 2 + 40, "CMYK")
    several = {"save_all": True, "append_images": frames[1:]}

    def save(image: Image.Image, form: str, **options: object) -> Callable[[], bytes]:
        def make() -> bytes:
            out = io.BytesIO()
            image.save(out, form, **options)
            return out.getvalue()

        return make

    return {
        "photo.jpg": save(soft, "JPEG", quality=95, subsampling=0),
        "subsampled.jpg": save(soft, "JPEG", quality=80, subsampling=2),
        "progressive.jpg": save(soft, "JPEG", quality=85, progressive=True),
        "grey.jpg": save(soft.convert("L"), "JPEG", quality=90),
        "cmyk.jpg": save(ink, "JPEG", quality=95),
        "exif-6.jpg": save(soft, "JPEG", quality=95, subsampling=0, exif=exif(6)),
        "rgb.webp": save(photo, "WEBP", lossless=True),
        "alpha.webp": save(alpha, "WEBP", lossless=True, exact=True),
        "animated.webp": save(frames[0], "WEBP", lossless=True, **several),
        "still.gif": save(photo.quantize(64), "GIF"),
        "clear.gif": save(photo.quantize(16), "GIF", transparency=5),
        "animated.gif": save(frames[0], "GIF", **several),
        "animated.png": save(frames[0], "PNG", **several),
    }


def opened(name: str, data: bytes) -> Picture:
    """A given picture, its pixels read by Pillow's own operations."""
    image = Image.open(io.BytesIO(data))
    turn = image.getexif().get(0x0112, 1)
    if not image.has_transparency_data:
        return Picture(name, data, np.asarray(image.convert("RGB")), turn=turn)
    layers = np.asarray(image.convert("RGBA"))
    return Picture(name, data, layers[..., :3], layers[..., 3], turn)
