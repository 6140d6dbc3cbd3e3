"""Which files are media, which are clutter, and in what order people expect them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from edgeserve.errors import DataError

__all__ = [
    "SUFFIXES",
    "FileMedium",
    "Medium",
    "check_file",
    "is_clutter",
    "medium_of",
    "natural_key",
]

FileMedium = Literal["image", "audio", "text"]
#: What a model takes: a medium, or named tensors.
Medium = Literal["image", "audio", "text", "tensors"]

#: File suffixes by medium. A folder holds one medium: the first of these that it has any file of.
#: Pictures are those that `edgeserve.processing` decodes.
SUFFIXES: dict[FileMedium, frozenset[str]] = {
    "image": frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}),
    "audio": frozenset({".aac", ".aiff", ".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wav"}),
    "text": frozenset({".txt"}),
}

#: What desktop systems and archivers leave in folders without being asked.
_CLUTTER = frozenset({"__macosx", "desktop.ini", "thumbs.db"})
_DIGITS = re.compile(r"([0-9]+)")


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key under which ``img2`` comes before ``img10``; equal only for equal names."""
    parts = _DIGITS.split(name.casefold())
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts], name


def is_clutter(part: str) -> bool:
    """Whether a file or folder name is hidden or a system's own."""
    return part.startswith(".") or part.casefold() in _CLUTTER


def medium_of(path: str) -> FileMedium | None:
    """The medium that a file's suffix says; None for anything else."""
    suffix = os.path.splitext(path)[1].lower()
    return next((medium for medium, known in SUFFIXES.items() if suffix in known), None)


def check_file(path: Path, where: str) -> None:
    """See that ``path`` is a file with something in it that can be read.

    Args:
        path: The file.
        where: What names it: the file itself, or ``data.jsonl line 3``.

    Raises:
        DataError: EDGE-DATA-003 missing or no regular file, -004 empty, -005 not readable.
    """
    if not path.is_file():
        got = "a folder" if path.is_dir() else "a broken link" if path.is_symlink() else "nothing"
        raise DataError(
            "EDGE-DATA-003",
            where,
            wanted=f"a file at {path}",
            got=got,
            hint="correct the path; a relative one starts at the folder of the file that names it",
        )
    if path.stat().st_size == 0:
        raise DataError(
            "EDGE-DATA-004",
            where,
            wanted="a file with bytes in it",
            got=f"{path}, empty",
            hint="replace the file or take it out of the data",
        )
    if not os.access(path, os.R_OK):
        raise DataError(
            "EDGE-DATA-005",
            where,
            wanted=f"to read {path}",
            got="permission denied",
            hint="give yourself the right to read it",
        )
