"""`load_data`: what ``--data`` names, as samples, and `split`: its two halves.

One reader a form, chosen by what lies there. The halves are split by group: one to calibrate
with, the other to validate with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from edgeserve.data.coco import read_coco
from edgeserve.data.ground_truth import LabelSchema
from edgeserve.data.media import Medium, read_folder, read_jsonl
from edgeserve.data.reader import read_npz
from edgeserve.errors import DataError
from edgeserve.types.base import Value
from edgeserve.types.samples import Half, Sample
from edgeserve.types.tensors import Signature

DataFormat = Literal["folder", "classes", "jsonl", "coco", "npz"]

_FORMS = "a folder of files, a folder of class folders, a .jsonl, a COCO .json or an .npz"


class DataSet(Value, frozen=True):
    """What lies under one ``--data``.

    Attributes:
        kind: Which form it has.
        path: Absolute path of what was read (a folder's ``data.jsonl`` where it holds one).
        samples: In natural order (files) or in the file's own (lines, rows).
        skipped: Files that were left out because they are not media, relative and sorted.
        unused: Kinds of true answers ("boxes", "mask", ...) that are not of the model's task.
    """

    kind: DataFormat
    path: str
    samples: tuple[Sample, ...]
    skipped: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def load_data(
    path: Path, signature: Signature | None = None, medium: Medium | None = None
) -> tuple[Sample, ...]:
    """The samples of a data set (`scan` says also what was left out).

    Raises:
        DataError: see `scan`.
    """
    return scan(path, signature, medium).samples


def scan(
    path: Path,
    signature: Signature | None = None,
    medium: Medium | None = None,
    known: LabelSchema | None = None,
) -> DataSet:
    """Read what ``path`` names.

    A folder that holds ``data.jsonl`` is described by that file: its groups must not be lost by
    naming the folder instead.

    Args:
        path: A folder, ``.jsonl``, ``.json`` (COCO) or ``.npz``.
        signature: The model's, against which the arrays of an ``.npz`` are checked.
        medium: What the model takes (`edgeserve.processing.Processor.medium`): it says whether a
            line of a ``data.jsonl`` is a text or a file. None: not known yet.
        known: The model whose true answers (boxes, masks, spans, ...) are to be read; None: none
            are, and none are checked.

    Raises:
        DataError: EDGE-DATA-001 nothing there, -002 unknown form, -003 to -016 what is wrong, -023
            to -026 what is wrong with true answers.
    """
    path = path.absolute()
    if path.is_dir():
        table = path / "data.jsonl"
        return _jsonl(table, medium, known) if table.is_file() else _folder(path)
    if not path.exists():
        got = "nothing at this path"
        hint = "correct the path given with --data"
        raise DataError("EDGE-DATA-001", str(path), wanted=_FORMS, got=got, hint=hint)
    match path.suffix.lower():
        case ".jsonl":
            return _jsonl(path, medium, known)
        case ".json":
            return DataSet(kind="coco", path=str(path), samples=read_coco(path, known))
        case ".npz":
            return DataSet(kind="npz", path=str(path), samples=read_npz(path, signature))
        case suffix:
            got = f"a file with suffix {suffix!r}"
            hint = "put single files into a folder and give that"
            raise DataError("EDGE-DATA-002", str(path), wanted=_FORMS, got=got, hint=hint)


def _jsonl(path: Path, medium: Medium | None, known: LabelSchema | None) -> DataSet:
    samples, unused = read_jsonl(path, medium, known)
    return DataSet(kind="jsonl", path=str(path), samples=samples, unused=unused)


def _folder(path: Path) -> DataSet:
    samples, skipped = read_folder(path)
    kind: DataFormat = "classes" if samples[0].label is not None else "folder"
    return DataSet(kind=kind, path=str(path), samples=samples, skipped=skipped)


def split(samples: Iterable[Sample], seed: int = 0) -> dict[Half, tuple[Sample, ...]]:
    """Deal the groups out in turn, so that samples of one group never stand on both sides.

    Groups are sorted by sha256 of ``{seed}:{group}``; the first goes to the evaluation half, the
    second to calibration, and so on: the evaluation half has as many groups or one more. Which half
    a group falls into depends on the groups' names, never on the order or number of samples.
    Samples keep their order.

    Raises:
        DataError: EDGE-DATA-019, fewer than two groups.
    """
    samples = tuple(samples)
    digests = {s.group: hashlib.sha256(f"{seed}:{s.group}".encode()).hexdigest() for s in samples}
    groups = sorted(digests, key=digests.__getitem__)
    if len(groups) < 2:
        wanted = "at least two groups"
        got = f"{len(samples)} inputs in {len(groups)} group{'s' * (len(groups) != 1)}"
        hint = "add inputs of another photo or speaker, or correct what the data calls a group"
        raise DataError("EDGE-DATA-019", "the data", wanted=wanted, got=got, hint=hint)
    judged = frozenset(groups[::2])
    return {
        "calibration": tuple(s for s in samples if s.group not in judged),
        "evaluation": tuple(s for s in samples if s.group in judged),
    }
