"""Thumbnails of the inputs that went worst, as ``data:`` URIs.

A picture is decoded by Pillow alone and encoded anew, so that nothing of the original file but its
pixels reaches the report: no EXIF, no place, no camera.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


#: Longest edge in pixels: shown at half of that, so it is sharp on dense screens.
_EDGE = 288
_QUALITY = 78
#: Larger files and pictures are not opened.
_LARGEST_FILE = 64 << 20
_LARGEST_PIXELS = 120_000_000
#: Only formats whose decoders are common and need no second program.
_ORIENTATION = 0x0112
#: Orientations that exchange width and height.
_SWAPPED = (5, 6, 7, 8)
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")


class Thumbnails:
    """Makes thumbnails within a budget of bytes, each picture once.

    Attributes:
        left: Bytes that may still be embedded.
        refused: How many pictures found no place or could not be read.
    """

    def __init__(self, root: Path, budget: int = 1_000_000) -> None:
        self.left = budget
        self.refused = 0
        self._root = root
        self._sizes: dict[Path, tuple[int, int]] = {}
        self._made: dict[Path, str | None] = {}

    def __call__(self, path: str | None) -> str | None:
        """The ``data:`` URI of the picture at ``path`` (absolute or in the workspace), or None."""
        file = self._find(path)
        if file is None:
            return None
        if file not in self._made:
            encoded = _encode(file)
            self._made[file] = self._fit(encoded.jpeg if encoded else None)
            if encoded:
                self._sizes[file] = encoded.size
            self.refused += self._made[file] is None
        return self._made[file]

    def size(self, path: str | None) -> tuple[int, int] | None:
        """Width and height of the upright photo itself, once its thumbnail has been made."""
        file = self._find(path)
        return self._sizes.get(file) if file else None

    def _find(self, path: str | None) -> Path | None:
        if not path or "\0" in path:
            return None
        file = (self._root / path).resolve()
        inside = Path(path).is_absolute() or self._root.resolve() in file.parents
        return file if inside and file.is_file() else None

    def _fit(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        uri = "data:image/jpeg;base64," + base64.b64encode(data).decode()
        if len(uri) > self.left:
            return None
        self.left -= len(uri)
        return uri


class _Thumbnail(NamedTuple):
    """A thumbnail, and the size of the upright photo that it shows."""

    jpeg: bytes
    size: tuple[int, int]


def _encode(file: Path) -> _Thumbnail | None:
    """Decode, turn upright, lay over white, shrink and encode; None if it is no picture."""
    import warnings

    from PIL import Image, ImageOps

    Image.init()  # `formats` below knows only what has been loaded
    try:
        if file.stat().st_size > _LARGEST_FILE:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # broken EXIF, odd palettes: not the report's business
            with Image.open(file, formats=_FORMATS) as picture:
                if picture.width * picture.height > _LARGEST_PIXELS:
                    return None
                lies = picture.getexif().get(_ORIENTATION, 1) in _SWAPPED
                whole = picture.size[::-1] if lies else picture.size
                picture.draft("RGB", (2 * _EDGE, 2 * _EDGE))
                small = _to_rgb(ImageOps.exif_transpose(picture))
    except Exception:  # a decoder fed with a user's file may raise anything
        return None
    small.thumbnail((_EDGE, _EDGE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    bare = Image.frombytes(small.mode, small.size, small.tobytes())  # comments travel in `info`
    bare.save(out, "JPEG", quality=_QUALITY, optimize=True)
    return _Thumbnail(out.getvalue(), whole)


def _to_rgb(picture: Picture) -> Picture:
    """RGB; transparent parts over white, levels of more than 8 bits stretched to 0..255."""
    import numpy as np
    from PIL import Image

    if picture.mode.startswith("I") or picture.mode == "F":
        levels = np.asarray(picture, np.float64)
        span = max(1e-9, float(levels.max() - levels.min()))
        picture = Image.fromarray(np.uint8((levels - levels.min()) * (255.0 / span)))
    if picture.has_transparency_data:
        cover = picture.convert("RGBA")
        paper = Image.new("RGBA", cover.size, "white")
        picture = Image.alpha_composite(paper, cover)
    return picture.convert("RGB")
