"""Raw inputs as bytes, for an endpoint that runs the processing itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing import Sound

__all__ = ["raw_bytes"]


def raw_bytes(raw: Any, medium: str) -> bytes:
    """What the bytes of a raw input are; a decoded picture becomes a PNG, samples a WAV of floats.

    Neither loses anything.

    Raises:
        InputError: EDGE-INPUT-001, it cannot be read, or is of a kind that has no bytes; -034 or
            -035, samples of another kind, or without a rate.
    """
    if isinstance(raw, bytes | bytearray | memoryview):
        return bytes(raw)
    if medium == "text" and isinstance(raw, str):
        return raw.encode("utf-8")
    if isinstance(raw, Sound):
        return raw.wav()
    if isinstance(raw, np.ndarray) and medium == "audio":
        return Sound(raw, 0).wav()  # which says that the rate is missing
    if isinstance(raw, np.ndarray):
        from PIL import Image

        return _png(Image.fromarray(raw))
    if hasattr(raw, "save") and hasattr(raw, "size"):
        return _png(raw)
    return _file(raw)


def _png(picture: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _file(raw: Any) -> bytes:
    try:
        if isinstance(raw, str | Path):
            return Path(raw).read_bytes()
        data = raw.read()
        return bytes(data)
    except (OSError, AttributeError, TypeError) as error:
        raise InputError(
            "EDGE-INPUT-001",
            "raw input",
            wanted="bytes, a path, a file, a picture or an array",
            got=getattr(error, "strerror", None) or type(raw).__name__,
            hint="give `predict` what docs/wrapper.md lists",
        ) from error
