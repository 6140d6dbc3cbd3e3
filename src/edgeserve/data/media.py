"""Media files: which files are media, their natural order, and a folder of them as samples.

A folder may hold files, or class folders. Hidden files and those that systems leave behind are
passed over.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from edgeserve.errors import DataError
from edgeserve.types.samples import Sample

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
_GRANT = "grant read permission, for example with chmod or chown"
_DIGITS = re.compile(r"([0-9]+)")


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key under which ``img2`` comes before ``img10``; equal only for equal names."""
    parts = _DIGITS.split(name.casefold())
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts], name


def _is_clutter(part: str) -> bool:
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
        hint = "correct the path; a relative one starts at the folder of the file that names it"
        raise DataError("EDGE-DATA-003", where, wanted=f"a file at {path}", got=got, hint=hint)
    if path.stat().st_size == 0:
        wanted = "a file with bytes in it"
        hint = "replace the file or take it out of the data"
        raise DataError("EDGE-DATA-004", where, wanted=wanted, got=f"{path}, empty", hint=hint)
    if not os.access(path, os.R_OK):
        raise DataError(
            "EDGE-DATA-005", where, wanted=f"to read {path}", got="permission denied", hint=_GRANT
        )


def read_folder(root: Path) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """All media files below ``root`` in natural order, and what was left out.

    Where every file lies in a folder below ``root``, the first folder's name is the label; a file
    at the top makes it a plain folder without labels. Each file is a group of its own. Hidden files
    and those that systems leave behind are passed over in silence; files that are no medium, or
    another one, are returned.

    Raises:
        DataError: EDGE-DATA-006 no media file, -003 to -005 a file that cannot be read.
    """
    files = _list_files(root)
    medium = _folder_medium(root, files)
    chosen = [f for f in files if medium_of(f) == medium]
    _check_names(chosen)
    labelled = all("/" in f for f in chosen)
    for file in chosen:
        check_file(root / file, file)
    samples = tuple(
        Sample(id=f, group=f, path=str(root / f), label=f.partition("/")[0] if labelled else None)
        for f in chosen
    )
    return samples, tuple(f for f in files if medium_of(f) != medium)


def _list_files(root: Path) -> list[str]:
    """Relative POSIX paths of everything that is not clutter; linked folders are not entered."""
    found = []
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        subfolders[:] = [s for s in subfolders if not _is_clutter(s)]
        base = Path(folder).relative_to(root)
        found += [(base / name).as_posix() for name in names if not _is_clutter(name)]
    return sorted(found, key=natural_key)


def _check_names(files: list[str]) -> None:
    """Names are shown and hashed: each has to be text."""
    for file in files:
        try:
            file.encode()
        except UnicodeEncodeError as error:
            where = ascii(file)
            wanted = "a file name in UTF-8"
            got = "other bytes"
            hint = "rename the file"
            raise DataError("EDGE-DATA-022", where, wanted=wanted, got=got, hint=hint) from error


def unreadable(path: str, error: OSError, wanted: str = "to read it") -> DataError:
    """EDGE-DATA-005, the system refuses to read a file or folder."""
    got = error.strerror or str(error)
    return DataError("EDGE-DATA-005", path, wanted=wanted, got=got, hint=_GRANT)


def _refuse(error: OSError) -> None:
    raise unreadable(str(error.filename), error, "to list the folder") from error


def _folder_medium(root: Path, files: list[str]) -> FileMedium:
    present = {medium_of(f) for f in files}
    for medium in ("image", "audio", "text"):
        if medium in present:
            return medium
    got = f"{len(files)} other files ({files[0]}, ...)" if files else "no file"
    wanted = "picture, sound or .txt files"
    hint = "give the folder that holds the inputs, or list them in a data.jsonl"
    raise DataError("EDGE-DATA-006", str(root), wanted=wanted, got=got, hint=hint)
