"""COCO json: the list of images, their labels, and their boxes or masks for whoever has a use."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeserve.data.coco_truths import Annotation, Category, Image, truths_of
from edgeserve.data.media import check_file
from edgeserve.data.truths import Known
from edgeserve.errors import DataError
from edgeserve.types.samples import Sample

__all__ = ["read_coco"]


class _Coco(msgspec.Struct):
    """The members of a COCO file that are read; it may hold any others."""

    images: list[Image]
    annotations: list[Annotation] = []
    categories: list[Category] = []


def read_coco(path: Path, known: Known | None = None) -> tuple[Sample, ...]:
    """The images of a COCO json in its order; each is a group of its own.

    ``file_name`` is relative to the json's folder. The label is the class's name where all
    annotations of an image have the same class, else None.

    Args:
        path: The json.
        known: The model whose true answers are wanted: a detector's boxes (``bbox``), the masks of
            a segmentation (``segmentation``). None: boxes and masks are not looked at.

    Raises:
        DataError: EDGE-DATA-005 unreadable, -009 not COCO or inconsistent, -006 no image, -008 an
            image listed twice, -003 and -004 a file that is missing or empty; with ``known`` -023
            classes that it does not have, -024 a bad box, -025 a bad mask.
    """
    coco = _parse(path)
    labels = _labels(path, coco)
    samples = []
    files: dict[int | str, Path] = {}
    first: dict[str, int] = {}
    for index, image in enumerate(coco.images):
        file = path.parent / image.file_name
        check_file(file, f"{path.name} images[{index}]")
        key = str(file.resolve())
        if key in first:
            raise DataError(
                "EDGE-DATA-008",
                f"{path.name} images[{index}]",
                wanted="each image once",
                got=f"{image.file_name}, which images[{first[key]}] is too",
                hint="remove one of the two: an input counts as evidence once",
            )
        first[key] = index
        name = Path(image.file_name).as_posix()
        files[image.id] = file
        samples.append(Sample(id=name, group=name, path=key, label=labels.get(image.id)))
    if not samples:
        raise DataError(
            "EDGE-DATA-006",
            str(path),
            wanted="a list of images",
            got="an empty one",
            hint="give the json that lists the images",
        )
    truths = truths_of(path.name, coco.annotations, coco.categories, files, known) if known else {}
    return tuple(
        msgspec.structs.replace(sample, truth=truths[image.id]) if image.id in truths else sample
        for image, sample in zip(coco.images, samples, strict=True)
    )


def _parse(path: Path) -> _Coco:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Coco)
    except OSError as error:
        raise DataError(
            "EDGE-DATA-005",
            str(path),
            wanted="to read it",
            got=error.strerror or str(error),
            hint="give yourself the right to read it",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _not_coco(path, str(error)) from error


def _labels(path: Path, coco: _Coco) -> dict[int | str, str]:
    """Class name by image id, for images whose annotations hold one class only."""
    ids = {image.id for image in coco.images}
    names = {category.id: category.name for category in coco.categories}
    if len(ids) != len(coco.images):
        raise _not_coco(path, "two images with the same id")
    classes: dict[int | str, set[int | str]] = {}
    for index, note in enumerate(coco.annotations):
        if note.image_id not in ids:
            raise _not_coco(path, f"annotations[{index}] of the unknown image {note.image_id}")
        if note.category_id not in names:
            raise _not_coco(path, f"annotations[{index}] of the unknown class {note.category_id}")
        classes.setdefault(note.image_id, set()).add(note.category_id)
    return {image: names[found.pop()] for image, found in classes.items() if len(found) == 1}


def _not_coco(path: Path, got: str) -> DataError:
    return DataError(
        "EDGE-DATA-009",
        str(path),
        wanted="COCO json with images, annotations and categories",
        got=got,
        hint="export the json again, or list the inputs in a data.jsonl",
    )
