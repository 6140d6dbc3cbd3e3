"""COCO json: the list of images, their labels, and their boxes or masks for whoever has a use.

Boxes and masks are given in the model's own classes.

Source:
    COCO, "Data format", https://cocodataset.org/#format-data: boxes from the upper left corner,
    polygons in pixels, runs column by column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from edgeserve.data.ground_truth import (
    CocoImage,
    LabelSchema,
    picture_size,
    truth_readers,
    unknown_classes,
)
from edgeserve.data.media import check_file, unreadable
from edgeserve.errors import DataError
from edgeserve.tasks.values import Truth
from edgeserve.types.samples import Sample

_NOTHING = msgspec.Raw(b"null")
_EMPTY = (b"null", b"[]", b"{}")


class Image(msgspec.Struct):
    """An image that a json lists."""

    id: int | str
    file_name: str


class Annotation(msgspec.Struct):
    """What is in an image; `_coco` adds the fields that tasks read."""

    image_id: int | str
    category_id: int | str


class Category(msgspec.Struct):
    """A class."""

    id: int | str
    name: str


def _truths_of(
    name: str,
    annotations: Sequence[Annotation],
    categories: Sequence[Category],
    files: Mapping[int | str, Path],
    known: LabelSchema,
) -> dict[int | str, Truth]:
    """What is true of each image; nothing where no annotation says it.

    An image without annotations, in a json that has some, holds nothing.

    Args:
        name: What to call the json in errors.
        annotations: All of them; each of an image and a class that exist.
        categories: All classes.
        files: The images' files by id.
        known: The model. Where it has labels, categories count by name, else by id.

    Raises:
        DataError: EDGE-DATA-023 to -025.
    """
    reader = known.truth
    if reader is None or reader.from_coco is None:
        return {}
    if all(bytes(getattr(note, reader.coco[0])) in _EMPTY for note in annotations):
        return {}
    classes = _classes(name, annotations, categories, known) if reader.classes else {}
    grouped: defaultdict[int | str, list[tuple[str, Annotation]]] = defaultdict(list)
    for index, note in enumerate(annotations):
        where = f"{name} annotations[{index}] ({files[note.image_id].name})"
        grouped[note.image_id].append((where, note))
    return {
        image: reader.from_coco(
            CocoImage(grouped[image], classes, known, picture_size(file, exif=known.exif))
        )
        for image, file in files.items()
    }


def _classes(
    name: str, annotations: Sequence[Annotation], categories: Sequence[Category], known: LabelSchema
) -> dict[int | str, str]:
    """The model's name of each category that is used."""
    used = {note.category_id for note in annotations}
    names = {c.id: c.name if known.labels else c.id for c in categories if c.id in used}
    found = {id: known.named(label) for id, label in names.items()}
    if unknown := [names[id] for id, label in found.items() if label is None]:
        raise unknown_classes(known, f"{name} categories", unknown)
    return {id: label for id, label in found.items() if label is not None}


@cache
def _coco() -> Any:
    """The type of a COCO file: the members that are read; it may hold any others."""
    names = dict.fromkeys(name for reader in truth_readers() for name in reader.coco)
    fields = [(name, msgspec.Raw, _NOTHING) for name in names]
    annotation: Any = msgspec.defstruct("CocoAnnotation", fields, bases=(Annotation,))
    lists: list[tuple[str, Any, Any]] = [("annotations", list[annotation], [])]
    lists.append(("categories", list[Category], []))
    return msgspec.defstruct("Coco", [("images", list[Image]), *lists])


def read_coco(path: Path, known: LabelSchema | None = None) -> tuple[Sample, ...]:
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
        file, where = path.parent / image.file_name, f"{path.name} images[{index}]"
        check_file(file, where)
        key = str(file.resolve())
        if key in first:
            got = f"{image.file_name}, which images[{first[key]}] is too"
            hint = "remove one of the two: an input counts as evidence once"
            raise DataError("EDGE-DATA-008", where, wanted="each image once", got=got, hint=hint)
        first[key] = index
        name = Path(image.file_name).as_posix()
        files[image.id] = file
        samples.append(Sample(id=name, group=name, path=key, label=labels.get(image.id)))
    if not samples:
        got = "an empty one"
        hint = "give the json that lists the images"
        raise DataError("EDGE-DATA-006", str(path), wanted="a list of images", got=got, hint=hint)
    truths = _truths_of(path.name, coco.annotations, coco.categories, files, known) if known else {}
    return tuple(
        msgspec.structs.replace(sample, truth=truths[image.id]) if image.id in truths else sample
        for image, sample in zip(coco.images, samples, strict=True)
    )


def _parse(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_coco())
    except OSError as error:
        raise unreadable(str(path), error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _not_coco(path, str(error)) from error


def _labels(path: Path, coco: Any) -> dict[int | str, str]:
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
    wanted = "COCO json with images, annotations and categories"
    hint = "export the json again, or list the inputs in a data.jsonl"
    return DataError("EDGE-DATA-009", str(path), wanted=wanted, got=got, hint=hint)
