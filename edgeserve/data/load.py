"""`load_data`: what ``--data`` names, as samples. One reader a form, chosen by what lies there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from edgeserve.data.coco import read_coco
from edgeserve.data.folder import read_folder
from edgeserve.data.media import Medium
from edgeserve.data.npz import read_npz
from edgeserve.data.table import read_table
from edgeserve.data.truths import Known
from edgeserve.errors import DataError
from edgeserve.types.base import Value
from edgeserve.types.samples import Sample
from edgeserve.types.tensors import Signature

__all__ = ["DataSet", "Kind", "load_data", "scan"]

Kind = Literal["folder", "classes", "jsonl", "coco", "npz"]

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

    kind: Kind
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
    known: Known | None = None,
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
        return _table(table, medium, known) if table.is_file() else _folder(path)
    if not path.exists():
        raise DataError(
            "EDGE-DATA-001",
            str(path),
            wanted=_FORMS,
            got="nothing at this path",
            hint="correct the path given with --data",
        )
    match path.suffix.lower():
        case ".jsonl":
            return _table(path, medium, known)
        case ".json":
            return DataSet(kind="coco", path=str(path), samples=read_coco(path, known))
        case ".npz":
            return DataSet(kind="npz", path=str(path), samples=read_npz(path, signature))
        case suffix:
            raise DataError(
                "EDGE-DATA-002",
                str(path),
                wanted=_FORMS,
                got=f"a file with suffix {suffix!r}",
                hint="put single files into a folder and give that",
            )


def _table(path: Path, medium: Medium | None, known: Known | None) -> DataSet:
    samples, unused = read_table(path, medium, known)
    return DataSet(kind="jsonl", path=str(path), samples=samples, unused=unused)


def _folder(path: Path) -> DataSet:
    samples, skipped = read_folder(path)
    kind: Kind = "classes" if samples[0].label is not None else "folder"
    return DataSet(kind=kind, path=str(path), samples=samples, skipped=skipped)
