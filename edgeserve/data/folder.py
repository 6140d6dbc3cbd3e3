"""A folder of files, or a folder of class folders."""

from __future__ import annotations

import os
from pathlib import Path

from edgeserve.data.media import FileMedium, check_file, is_clutter, medium_of, natural_key
from edgeserve.errors import DataError
from edgeserve.types.samples import Sample

__all__ = ["read_folder"]


def read_folder(root: Path) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """All media files below ``root`` in natural order, and what was left out.

    Where every file lies in a folder below ``root``, the first folder's name is the label; a file
    at the top makes it a plain folder without labels. Each file is a group of its own. Hidden files
    and those that systems leave behind are passed over in silence; files that are no medium, or
    another one, are returned.

    Raises:
        DataError: EDGE-DATA-006 no media file, -003 to -005 a file that cannot be read.
    """
    files = _files(root)
    medium = _medium(root, files)
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


def _files(root: Path) -> list[str]:
    """Relative POSIX paths of everything that is not clutter; linked folders are not entered."""
    found = []
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        subfolders[:] = [s for s in subfolders if not is_clutter(s)]
        base = Path(folder).relative_to(root)
        found += [(base / name).as_posix() for name in names if not is_clutter(name)]
    return sorted(found, key=natural_key)


def _check_names(files: list[str]) -> None:
    """Names are shown and hashed: each has to be text."""
    for file in files:
        try:
            file.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                "EDGE-DATA-022",
                ascii(file),
                wanted="a file name in UTF-8",
                got="other bytes",
                hint="rename the file",
            ) from error


def _refuse(error: OSError) -> None:
    raise DataError(
        "EDGE-DATA-005",
        str(error.filename),
        wanted="to list the folder",
        got=error.strerror or str(error),
        hint="give yourself the right to read it",
    ) from error


def _medium(root: Path, files: list[str]) -> FileMedium:
    present = {medium_of(f) for f in files}
    for medium in ("image", "audio", "text"):
        if medium in present:
            return medium
    got = f"{len(files)} other files ({files[0]}, ...)" if files else "no file"
    raise DataError(
        "EDGE-DATA-006",
        str(root),
        wanted="picture, sound or .txt files",
        got=got,
        hint="give the folder that holds the inputs, or list them in a data.jsonl",
    )
