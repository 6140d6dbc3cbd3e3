"""What headers say of an input: its orientation, and its size without decoding it.

EXIF orientation is read strictly, with XMP as fallback. Pillow's own EXIF reader warns or raises
on damaged metadata, depending on where the damage is. Here damaged metadata never stops an
image: a tag that cannot be read is a tag that is not there.
"""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.errors import InputError
from edgeserve.processing.audio.source import read_wav
from edgeserve.types.steps import Size

if TYPE_CHECKING:
    import PIL.Image


_TAG = 0x0112
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
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
    order = _ORDERS.get(data[:4])
    if order is None:
        return None
    found = None
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (entries,) = struct.unpack_from(order + "H", data, start)
        for at in range(start + 2, start + 2 + 12 * entries, 12):
            tag, kind, count = struct.unpack_from(order + "HHI", data, at)
            if tag == _TAG and kind in _FORMATS and count == 1:
                (found,) = struct.unpack_from(order + _FORMATS[kind], data, at + 8)
    except struct.error:
        pass  # the block ends early: what was read before that counts
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


#: Orientations that lie on their side.
_TURNED = (5, 6, 7, 8)


def picture_size(path: Path, *, exif: bool = True) -> Size | None:
    """Height and width of a picture that decode/1 will read.

    Args:
        path: Its file.
        exif: The step turns it upright.

    Returns:
        None where the header cannot be read: whoever decodes it says why.
    """
    try:
        from PIL import Image

        with warnings.catch_warnings():  # of metadata, which the decoder hears as well
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                width, height = image.size
                turn = orientation(image) if exif else 1
    except Exception:  # plugins raise whatever a broken header leads them to
        return None
    return (width, height) if turn in _TURNED else (height, width)


def sound_seconds(path: Path) -> float | None:
    """Length of a WAV in seconds; None where it cannot be read as one."""
    try:
        wav = read_wav(path.read_bytes())
    except (OSError, InputError):
        return None
    return wav.frames / wav.rate if wav.rate else None
