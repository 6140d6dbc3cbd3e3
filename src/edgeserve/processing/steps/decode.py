"""decode/1: whatever holds an image becomes an upright 8-bit RGB image.

Decoding is Pillow's, restricted to six formats. What Pillow leaves to the caller is decided here
and written down in ``spec/processing.md``: transparency, 16-bit samples, orientation, limits,
and that nothing in a damaged file may surface as anything but a coded error. The colour half
takes any Pillow mode that is accepted to 8-bit RGB without transparency.

EXIF orientation is read strictly, with XMP as fallback. Pillow's own EXIF reader warns or raises
on damaged metadata, depending on where the damage is. Here damaged metadata never stops an
image: a tag that cannot be read is a tag that is not there.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, ClassVar, TypeAlias, TypeVar

import numpy as np

from edgeserve.errors import InputError, ProcessingError
from edgeserve.installation import install_command
from edgeserve.processing.image.plan import check_blocks, copies, entries
from edgeserve.processing.inputs import bytes_of
from edgeserve.types.steps import Color, InputStep, Size, check_color, held_bytes

if TYPE_CHECKING:
    import PIL.Image

    from edgeserve.processing.audio.source import Sound


class Decode(InputStep, frozen=True, tag_field="step", tag="decode/1"):
    """Encoded bytes to HWC uint8 RGB.

    Attributes:
        exif: Turn the picture upright as its EXIF orientation says.
        background: RGB that transparent pixels are laid over.
        max_pixels: A picture with more pixels is refused (decompression bombs).
    """

    rank: ClassVar = 0

    exif: bool = True
    background: Color = (255, 255, 255)
    max_pixels: int = 178_956_970

    def __post_init__(self) -> None:
        check_color("background", self.background)
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels {self.max_pixels} is below 1")


SIXTEEN = ("I;16", "I;16B", "I;16L", "I;16N")
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
#: Pillow modes that decode/1 accepts.
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", *_PREMULTIPLIED, *SIXTEEN)

#: Bits a sample of PNG's small greys, by the raw mode Pillow reads them with.
_SMALL_GREYS = {"L;2": 2, "L;4": 4}


def _fix_colour_key(image: PIL.Image.Image) -> None:
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
        raise _unsupported_mode("16-bit RGB with one transparent colour")


def to_rgb(image: PIL.Image.Image, background: tuple[int, int, int]) -> PIL.Image.Image:
    """Make a loaded picture RGB; what is transparent is laid over ``background``.

    A picture that is RGB already comes back as it is.

    Raises:
        InputError: EDGE-INPUT-005, the mode has no 8-bit RGB meaning (float, 32-bit integers, LAB).
    """
    if image.mode not in MODES:
        raise _unsupported_mode(f"pixels of mode {image.mode!r}")
    if image.mode in SIXTEEN:
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


def _unsupported_mode(what: str) -> InputError:
    wanted = "grey, palette, RGB or CMYK of 8 bits, or grey of 16"
    hint = "convert it first: how such pixels become 0..255 is for you to say"
    return InputError("EDGE-INPUT-005", "picture", wanted=wanted, got=what, hint=hint)


#: What a caller may hand over: encoded bytes, a path, a binary file, a Pillow picture, an array
#: uint8 [height, width, 3] in RGB, or samples with their rate.
Raw: TypeAlias = (
    "bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO"
    " | PIL.Image.Image | np.ndarray | Sound"
)

#: How an object of Python is printed that has no words of its own: of no use to a reader.
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>")

#: Formats that decode/1 reads, by Pillow's names.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

#: What files of these formats start with (BMP's two letters say too little): without a header that
#: can be read, such a file is damaged rather than something else.
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"II*\0", b"MM\0*")


def decode(step: Decode, raw: Raw) -> PIL.Image.Image:
    """Decode ``raw`` to a Pillow picture of mode RGB.

    Args:
        step: Its parameters.
        raw: See `Raw`. A caller's picture or array is never changed.

    Raises:
        InputError: EDGE-INPUT-001 to -007 or -009, ``raw`` is not such a picture.
        ProcessingError: EDGE-PROCESS-011, Pillow is not installed.
    """
    return EncodedImage(step, raw).decode()


class EncodedImage:
    """A raw picture whose header has been read, and nothing more.

    Attributes:
        size: Height and width of the upright picture.
        peak: Bytes that decoding it takes at most.
    """

    __slots__ = ("_data", "_image", "_step", "peak", "size")

    def __init__(self, step: Decode, raw: Raw) -> None:
        """Read the header.

        Raises:
            InputError: EDGE-INPUT-001 to -007 or -009.
            ProcessingError: EDGE-PROCESS-011, Pillow is not installed.
        """
        self._step, self._data = step, b""
        self._image = self._opened(raw)
        turn = orientation(self._image) if step.exif else 1
        width, height = self._image.size
        self.size: Size = (width, height) if turn > 4 else (height, width)
        self.peak = int(copies(self._image, turn > 1, self._data) * held_bytes((height, width)))

    def decode(self) -> PIL.Image.Image:
        """The picture, upright, of mode RGB; errors as above."""
        image = _quietly(self._loaded)
        turn = orientation(image) if self._step.exif else 1
        return upright(to_rgb(image, self._step.background), turn)

    def _opened(self, raw: Raw) -> PIL.Image.Image:
        try:
            from PIL import Image
        except ImportError as error:
            raise ProcessingError(
                "EDGE-PROCESS-011",
                "step 'decode/1'",
                wanted="Pillow",
                got="no module named PIL",
                hint=install_command("onnx"),
            ) from error
        if isinstance(raw, np.ndarray):
            height, width = checked_array(raw).shape[:2]
            _check_pixels(self._step, width, height)
            return Image.fromarray(raw)
        if isinstance(raw, Image.Image):
            _check_pixels(self._step, *raw.size)
            # Pillow writes a palette's transparency into the palette it converts: into a copy then.
            return raw.copy() if raw.mode == "P" else raw
        self._data = bytes_of(raw, "picture", "a Pillow picture or an array")
        return _quietly(partial(_header, self._step, self._data))

    def _loaded(self) -> PIL.Image.Image:
        image = self._image
        try:
            image.load()
        except (Warning, MemoryError):
            raise
        except Exception as error:  # as of the header, now for the pixels
            raise _damaged(error) from error
        return image


_T = TypeVar("_T")


def _quietly(act: Callable[[], _T]) -> _T:
    """Do it again without warnings where a caller made them errors.

    Pillow's remarks about metadata would refuse pictures that everybody else can use. Only then:
    the context is not safe among threads.
    """
    try:
        return act()
    except Warning:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return act()


#: Bytes that a decoder is given at once: a row that is longer is copied once for each piece of it.
_READ = 1 << 20


def _header(step: Decode, data: bytes) -> PIL.Image.Image:
    # Registered by import: otherwise Pillow loads all of its forty plugins to find these two.
    from PIL import Image, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

    check_blocks(data)
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        image.decodermaxblock = _READ
        _check_pixels(step, *image.size)  # the header says so: nothing is decoded yet
        _fix_colour_key(image)
    except (InputError, Warning, MemoryError):
        raise
    except UnidentifiedImageError as error:
        if data.startswith(_SIGNATURES):
            raise _damaged(error) from error
        wanted = " or ".join((", ".join(FORMATS[:-1]), FORMATS[-1]))
        got = _looks_like(data)
        hint = "convert the picture to JPEG or PNG"
        raise InputError("EDGE-INPUT-002", "picture", wanted=wanted, got=got, hint=hint) from error
    except Image.DecompressionBombError as error:
        raise _too_many("more than Pillow's own limit (PIL.Image.MAX_IMAGE_PIXELS)") from error
    except Exception as error:  # plugins raise whatever a broken header leads them to
        raise _damaged(error) from error
    return image


def _looks_like(data: bytes) -> str:
    if not data:
        return "no bytes at all"
    if data[4:8] == b"ftyp":
        return "HEIF or AVIF"
    if data[:5] == b"%PDF-":
        return "PDF"
    if b"<svg" in data[:1024]:
        return "SVG"
    return f"{len(data)} bytes that start with {data[:8].hex(' ')}"


def _check_pixels(step: Decode, width: int, height: int) -> None:
    if not width * height:
        raise _damaged(ValueError(f"it has {width} x {height} pixels"))
    if width * height > step.max_pixels:
        raise _too_many(f"{width} x {height} = {width * height}", step.max_pixels)


def checked_array(array: np.ndarray) -> np.ndarray:
    masked = isinstance(array, np.ma.MaskedArray)
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 and not masked:
        return array
    hint = "hand over the encoded picture, or uint8 RGB pixels with the channels last"
    if masked:
        hint = "say what masked pixels are: array.filled(0)"
    elif array.dtype != np.uint8:
        hint = "levels run from 0 to 255: undo any scaling, then .astype(np.uint8)"
    elif array.ndim == 2:
        hint = "repeat grey three times: np.stack([grey] * 3, axis=-1)"
    elif array.ndim == 3 and array.shape[2] == 4:
        hint = "lay transparency over a background first, or hand over a Pillow picture in RGBA"
    elif array.ndim == 3 and array.shape[0] == 3:
        hint = "put the channels last: array.transpose(1, 2, 0)"
    elif array.ndim == 4:
        hint = "hand over a list of arrays for a batch"
    wanted = "uint8 of shape [height, width, 3]"
    got = f"{'masked ' if masked else ''}{array.dtype} of shape {list(array.shape)}"
    raise InputError("EDGE-INPUT-006", "array", wanted=wanted, got=got, hint=hint)


def _too_many(got: str, limit: int | None = None) -> InputError:
    wanted = f"at most {limit} pixels" if limit else "a picture of sane size"
    hint = "scale the picture down before it is sent, or raise max_pixels of decode/1"
    return InputError("EDGE-INPUT-004", "picture", wanted=wanted, got=got, hint=hint)


def _damaged(error: Exception) -> InputError:
    wanted = "one that decodes to the end"
    got = f"damaged or cut off: {type(error).__name__}: {_OBJECT.sub('a file', str(error))}"
    hint = "send the file again, whole; a picture viewer that shows it may be guessing the rest"
    return InputError("EDGE-INPUT-003", "picture", wanted=wanted, got=got, hint=hint)


_TAG = 0x0112
#: How the value of a count-1 entry is read, by TIFF type: BYTE, SHORT, LONG.
_FORMATS = {1: "B", 3: "H", 4: "I"}
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def exif_orientation(data: bytes) -> int | None:
    r"""Find the orientation tag in the first directory of an EXIF block.

    Args:
        data: The block, with or without its ``Exif\0\0`` prefix.

    Returns:
        The tag's value, whatever it is; None where the block has none that can be read.

    Source: TIFF 6.0, section 2, and EXIF 2.3, section 4.6.4.
    """
    while data.startswith(b"Exif\0\0"):
        data = data[6:]
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    found = None
    for tag, kind, count, at in entries(data) if order else ():
        if tag == _TAG and kind in _FORMATS and count == 1:
            with contextlib.suppress(struct.error):  # the block ends early
                (found,) = struct.unpack_from(f"{order}{_FORMATS[kind]}", data, at)
    return found


def _exif_block(info: dict[str | tuple[int, int], object]) -> bytes:
    """The EXIF block that Pillow found, or nothing."""
    block = info.get("exif")
    if isinstance(block, bytes):
        return block
    # Old PNG writers keep it as text: a header of three lines, then hexadecimal digits.
    profile = info.get("Raw profile type exif")
    if isinstance(profile, str):
        try:
            return bytes.fromhex("".join(profile.split("\n")[3:]))
        except ValueError:
            return b""
    return b""


def orientation(image: PIL.Image.Image) -> int:
    """Orientation 1..8 of a loaded picture: EXIF, else XMP, else 1 (upright)."""
    info: dict[str | tuple[int, int], object] = dict(image.info)
    value = exif_orientation(_exif_block(info))
    if value is None:
        xmp = info.get("XML:com.adobe.xmp") or info.get("xmp") or b""
        xmp = xmp.encode() if isinstance(xmp, str) else xmp
        match = _XMP.search(xmp) if isinstance(xmp, bytes) else None
        value = int(match[1]) if match else 1
    return value if 1 <= value <= 8 else 1


#: What turns pictures of the orientations from 2 on upright, by Pillow's names.
_TURNS = (
    "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
).split()


def upright(image: PIL.Image.Image, value: int) -> PIL.Image.Image:
    """Turn a picture upright that was stored with orientation ``value``; 1 leaves it as it is."""
    if value == 1:
        return image
    from PIL.Image import Transpose

    return image.transpose(Transpose[_TURNS[value - 2]])
