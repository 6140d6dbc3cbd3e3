"""``data.jsonl``: a JSON object a line: ``{"input": path or text, "label": ..., "group": ...}``.

In place of ``label``, the true answers of other tasks: ``boxes``, ``mask``, ``spans`` or
``segments``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from edgeserve.data.ground_truth import LabelSchema, LineInput, truth_readers
from edgeserve.data.media import Medium, check_file, medium_of, unreadable
from edgeserve.errors import DataError
from edgeserve.tasks.values import Truth
from edgeserve.types.samples import Sample

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
