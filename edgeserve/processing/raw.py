"""Encoded bytes out of whatever a caller holds them in."""

from __future__ import annotations

import os
from typing import BinaryIO

from edgeserve.errors import InputError

__all__ = ["bytes_of"]


def bytes_of(raw: object, thing: str, kinds: str) -> bytes:
    """The bytes of a raw input.

    Args:
        raw: Bytes, a path of a regular file, or a binary file.
        thing: What it holds, as errors call it: "picture".
        kinds: What else a caller might have given, as errors list it.

    Raises:
        InputError: EDGE-INPUT-001 it cannot be read, -007 it is something else.
    """
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, bytearray | memoryview):
        return bytes(raw)
    if isinstance(raw, str | os.PathLike):
        return _read_path(os.fspath(raw), thing)
    content = _content(raw)
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    opened_as_text = isinstance(content, str)
    raise InputError(
        "EDGE-INPUT-007",
        "raw input",
        wanted=f"bytes, a path, a binary file, {kinds}",
        got="a file opened as text"
        if opened_as_text
        else f"{type(raw).__module__}.{type(raw).__qualname__}",
        hint="open the file with mode 'rb'" if opened_as_text else "convert it to one of these",
    )


def _content(raw: object) -> object:
    if not hasattr(raw, "read"):
        return None
    file: BinaryIO = raw  # type: ignore[assignment]
    return file.read()


def _read_path(path: str | bytes, thing: str) -> bytes:
    try:
        if not os.path.isfile(path):  # a pipe or device would be read for ever
            raise OSError("no such file" if not os.path.exists(path) else "not a regular file")
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise InputError(
            "EDGE-INPUT-001",
            f"{thing} {path!r}",
            wanted="a file that can be read",
            got=getattr(error, "strerror", None) or str(error),
            hint=f"a str is a path here; hand over the encoded {thing} itself as bytes",
        ) from error
