"""Media files: which files are media, their natural order, and a folder of them as samples.

A folder may hold files, or class folders. Hidden files and those that systems leave behind are
passed over.

``data.jsonl`` is a JSON object a line: ``{"input": path or text, "label": ..., "group": ...}``. In
place of ``label``, the true answers of other tasks: ``boxes``, ``mask``, ``spans``, ``segments``.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgeserve.data.ground_truth import LabelSchema, LineInput, truth_readers
from edgeserve.errors import DataError
from edgeserve.tasks.values import Truth
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


_BOM = b"\xef\xbb\xbf"


@cache
def _line() -> Any:
    """A line's type. Unknown keys are refused: a mistyped ``group`` would make bounds too tight."""
    name = str | int | None
    fields: list[tuple[str, Any, Any]] = [("label", name, None), ("group", name, None)]
    fields += [(each.key, each.type | None, None) for each in truth_readers()]
    return msgspec.defstruct("Line", [("input", str), *fields], forbid_unknown_fields=True)


def read_jsonl(
    path: Path, medium: Medium | None = None, known: LabelSchema | None = None
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """The samples that a ``data.jsonl`` lists, in its order; empty lines are passed over.

    For a model that takes text, an ``input`` is the text itself, unless it names an existing
    ``.txt`` file (relative to the table's folder, or absolute). For one that takes pictures or
    sounds it is a file. Where the medium is not known, it is a file if there is one of that name;
    else a text, unless it ends like a media file (``.jpg``): then one is missing.

    Args:
        path: The table.
        medium: What the model takes; None: not known.
        known: The model whose true answers are wanted; None: they are not looked at.

    Returns:
        The samples, and the kinds of true answers that the model has no use for.

    Raises:
        DataError: EDGE-DATA-005 unreadable, -006 no line, -007 a bad line, -008 an input listed
            twice, -003 and -004 a file that is missing or empty; with ``known`` -023 a class that
            it does not have, -024 to -026 a bad box, mask, span or segment. All name the line.
    """
    samples: list[Sample] = []
    kinds: set[str] = set()
    lines: dict[str, int] = {}
    keys = [each.key for each in truth_readers()]
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path.name} line {number}"
        parsed = _parse(where, line)
        sample = _sample(path, where, f"line {number}", parsed, medium)
        key = sample.path or sample.id
        if key in lines:
            got = f"{sample.id}, which line {lines[key]} lists too"
            hint = "remove one of the two lines: an input counts as evidence once"
            raise DataError("EDGE-DATA-008", where, wanted="each input once", got=got, hint=hint)
        lines[key] = number
        if known is not None:
            kinds |= {key for key in keys if getattr(parsed, key) is not None}
            truth = _truth(path, where, parsed, sample, known)
            sample = msgspec.structs.replace(sample, truth=truth)
        samples.append(sample)
    if not samples:
        wanted = "one JSON object a line"
        hint = 'write lines such as {"input": "cat.jpg", "group": "photo-1"}'
        raise DataError("EDGE-DATA-006", str(path), wanted=wanted, got="no line", hint=hint)
    own = known.truth.key if known and known.truth else None
    return tuple(samples), tuple(sorted(kinds - {own}))


def _truth(path: Path, where: str, line: Any, sample: Sample, known: LabelSchema) -> Truth | None:
    """The true answer of the model's task, where the line gives one."""
    reader = known.truth
    given = getattr(line, reader.key) if reader else None
    if reader is None or given is None:
        return None
    file = Path(sample.path) if sample.path is not None else None
    return reader.from_line(given, LineInput(where, known, path.parent, file, sample.text))


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from error
    return data.removeprefix(_BOM).split(b"\n")


def _parse(where: str, line: bytes) -> Any:
    try:
        parsed = msgspec.json.decode(line, type=_line())
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        keys = ", ".join(f'"{each.key}"' for each in truth_readers())
        wanted = f'{{"input": path or text}} with, where known, "label" (or {keys}) and "group"'
        hint = "each line is one whole JSON object in UTF-8, with no other keys"
        raise DataError("EDGE-DATA-007", where, wanted=wanted, got=str(error), hint=hint) from error
    if not parsed.input.strip():
        hint = "give a path or a text, or remove the line"
        raise DataError("EDGE-DATA-007", where, wanted='an "input"', got="an empty one", hint=hint)
    return parsed


def _sample(path: Path, where: str, name: str, line: Any, medium: Medium | None) -> Sample:
    """The input of a line; a text is called as its line is, and a file by its path."""
    label = None if line.label is None else str(line.label)
    is_file = _is_file(path, line.input, medium)
    identity = Path(line.input).as_posix() if is_file else name
    group = identity if line.group is None else str(line.group)
    if not is_file:
        return Sample(id=identity, group=group, text=line.input, label=label)
    file = path.parent / line.input
    check_file(file, where)
    return Sample(id=identity, group=group, path=str(file.resolve()), label=label)


def _is_file(table: Path, named: str, medium: Medium | None) -> bool:
    """Whether an ``input`` stands for a file, there or missing; see `read_jsonl`."""
    if len(named) >= 4096 or "\0" in named:
        return False
    there = _exists(table.parent / named)
    if medium == "text":
        return there and medium_of(named) == "text"
    # A missing file is meant rather than a text where the text ends like a media file.
    is_path = medium is None and medium_of(named) is not None and "\n" not in named
    return there or medium in ("image", "audio") or is_path


def _exists(file: Path) -> bool:
    try:
        return file.is_file() or file.is_symlink()
    except OSError:  # a long text is no file name
        return False
