"""How large an input is, by its header alone: nothing of it is decoded."""

from __future__ import annotations

import warnings
from pathlib import Path

from edgeserve.errors import InputError
from edgeserve.processing.geometry import Size
from edgeserve.processing.orientation import orientation
from edgeserve.processing.wav import read_wav

__all__ = ["picture_size", "sound_seconds"]

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
