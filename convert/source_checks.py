"""Checks made before a source is read: needed packages are installed, named files are its own.

A model folder from somebody else can hold links and names that point to other files of this
machine, which would then be read, copied and perhaps packaged. So the files that a model names
must lie in its folder, under plain names. Links are normal in one place: the cache of the
Hugging Face hub keeps each file once under ``blobs/`` and links to it from ``snapshots/``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from edgeserve.backends.versions import too_old
from edgeserve.errors import ConvertError
from edgeserve.installation import install_command


def check_packages(thing: str, needed: Mapping[str, str]) -> None:
    """Say what to install before a source can be read.

    Args:
        thing: What is to be read.
        needed: Packages, and for each the module that it brings.

    Raises:
        ConvertError: EDGE-CONVERT-060, missing or too old.
    """
    missing = [name for name, module in needed.items() if importlib.util.find_spec(module) is None]
    old = too_old(*needed)
    if missing or old:
        got = f"no {', '.join(missing)}" if missing else "versions that are too old"
        hint = install_command("convert") if missing else str(old)
        raise ConvertError("EDGE-CONVERT-060", thing, wanted=", ".join(needed), got=got, hint=hint)


def resolve_named_file(folder: Path, name: object, named_by: str, *, alone: bool = False) -> Path:
    """The file that a model's own data name, relative to its folder.

    Args:
        folder: The folder of the model.
        name: As it stands in the data.
        named_by: The file in which it stands, for the message.
        alone: Refuse a file that has further names (hard links), which may be somebody else's.

    Raises:
        ConvertError: EDGE-CONVERT-065 it leads elsewhere, -064 there is no such file.
    """
    text = name if isinstance(name, str) else ""
    parts = PurePosixPath(text).parts
    if not text or "\\" in text or "\0" in text or text.startswith("/") or ".." in parts:
        raise _outside_error(f"{named_by}: {name!r}", "a path that leads elsewhere")
    path = folder / text
    _check_link(folder, path)
    if not path.is_file():
        where = f"{named_by}: {text!r}"
        wanted = f"a file in {folder}"
        got = "none of that name"
        hint = "download or copy the model again, with all its files"
        raise ConvertError("EDGE-CONVERT-064", where, wanted=wanted, got=got, hint=hint)
    if alone and path.stat().st_nlink > 1:
        raise _outside_error(f"{named_by}: {text!r}", "a file with a second name (a hard link)")
    return path


def check_links(folder: Path) -> None:
    """Follow every link below a folder.

    Raises:
        ConvertError: EDGE-CONVERT-065, naming the first that leads elsewhere.
    """
    for where, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            path = Path(where, name)
            if path.is_symlink():
                _check_link(folder, path)


def _check_link(folder: Path, path: Path) -> None:
    """Compare where a path really lies with where it may: in the folder, or among its blobs."""
    real = path.resolve()
    allowed = [folder.resolve(), *_hub_blobs(folder)]
    if not any(real.is_relative_to(place) for place in allowed):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
        raise _outside_error(name, f"a link to {real}")


def _hub_blobs(folder: Path) -> list[Path]:
    """Where the cache keeps the files of ``.../snapshots/REVISION``, if ``folder`` is in one."""
    chain = [folder.absolute(), *folder.absolute().parents]
    return [(place.parent / "blobs").resolve() for place in chain if place.name == "snapshots"][:1]


def _outside_error(thing: str, got: str) -> ConvertError:
    wanted = "a file of the model's own folder"
    hint = "put a copy of the file itself into the folder, under a plain name"
    return ConvertError("EDGE-CONVERT-065", thing, wanted=wanted, got=got, hint=hint)
