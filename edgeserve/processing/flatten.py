"""The colour half of decode/1: any Pillow mode it accepts to 8-bit RGB without transparency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeserve.errors import InputError

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["MODES", "fix_colour_key", "flatten"]

_SIXTEEN = ("I;16", "I;16B", "I;16L", "I;16N")
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
#: Pillow modes that decode/1 accepts.
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", *_PREMULTIPLIED, *_SIXTEEN)

#: Bits a sample of PNG's small greys, by the raw mode Pillow reads them with.
_SMALL_GREYS = {"L;2": 2, "L;4": 4}


def fix_colour_key(image: PIL.Image.Image) -> None:
    """Bring a PNG's transparent colour to the scale of its pixels, in a picture not loaded yet.

    Pillow scales 2- and 4-bit greys to 0..255 and cuts 16-bit RGB to 8 bits, but leaves the colour
    that tRNS calls transparent as it stands in the file.

    Raises:
        InputError: EDGE-INPUT-005, 16-bit RGB with a transparent colour.
    """
    if not image.info.get("transparency") or image.mode not in ("L", "RGB"):
        return
    tiles = getattr(image, "tile", None) or [None]
    raw_mode = str(getattr(tiles[0], "args", None))
    if raw_mode in _SMALL_GREYS:
        image.info["transparency"] *= 255 // (2 ** _SMALL_GREYS[raw_mode] - 1)
    elif raw_mode == "RGB;16B":
        # Which pixels are transparent can no longer be told from their high bytes.
        raise _refuse("16-bit RGB with one transparent colour")


def flatten(image: PIL.Image.Image, background: tuple[int, int, int]) -> PIL.Image.Image:
    """Make a loaded picture RGB; what is transparent is laid over ``background``.

    A picture that is RGB already comes back as it is.

    Raises:
        InputError: EDGE-INPUT-005, the mode has no 8-bit RGB meaning (float, 32-bit integers, LAB).
    """
    if image.mode not in MODES:
        raise _refuse(f"pixels of mode {image.mode!r}")
    if image.mode in _SIXTEEN:
        image = _high_bytes(image)
    if image.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[image.mode])
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    from PIL import Image

    canvas = Image.new("RGB", image.size, background)
    colours = image.convert("RGBA")
    canvas.paste(colours, mask=colours)
    return canvas


def _high_bytes(image: PIL.Image.Image) -> PIL.Image.Image:
    """16-bit grey to L, or to LA where a grey is declared transparent (tRNS)."""
    from PIL import Image

    samples = np.asarray(image)
    grey = Image.fromarray((samples >> 8).astype(np.uint8))
    key = image.info.get("transparency")
    if not isinstance(key, int):
        return grey
    alpha = Image.fromarray(np.where(samples == key, 0, 255).astype(np.uint8))
    return Image.merge("LA", (grey, alpha))


def _refuse(what: str) -> InputError:
    return InputError(
        "EDGE-INPUT-005",
        "picture",
        wanted="grey, palette, RGB or CMYK of 8 bits, or grey of 16",
        got=what,
        hint="convert it first: how such pixels become 0..255 is for you to say",
    )
