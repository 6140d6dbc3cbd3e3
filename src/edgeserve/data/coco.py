"""COCO json: the list of images, their labels, and their boxes or masks for whoever has a use.

Boxes and masks are given in the model's own classes.

Source:
    COCO, "Data format", https://cocodataset.org/#format-data: boxes from the upper left corner,
    polygons in pixels, runs column by column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from edgeserve.data.ground_truth import (
    LabelSchema,
    bad_box,
    bad_mask,
    check_within,
    checked_box,
    unknown_classes,
)
from edgeserve.data.media import check_file
from edgeserve.errors import DataError
from edgeserve.processing.image.metadata import picture_size
from edgeserve.processing.image.resize import Size
from edgeserve.tasks.detection import TrueBoxes
from edgeserve.tasks.segmentation import Area, DrawnMask
from edgeserve.tasks.values import Truth
from edgeserve.types.samples import Sample

__all__ = ["Annotation", "Category", "Image", "read_coco", "truths_of"]


_T = TypeVar("_T")
_NOTHING = msgspec.Raw(b"null")
_YES = (b"1", b"true")
#: What the class of all that is not annotated is called, underscores and case aside.
_BACKGROUND = "background"


class Image(msgspec.Struct):
    """An image that a json lists."""

    id: int | str
    file_name: str


class Annotation(msgspec.Struct):
    """What is in an image. Box and outline are read where somebody wants them."""

    image_id: int | str
    category_id: int | str
    bbox: msgspec.Raw = _NOTHING
    segmentation: msgspec.Raw = _NOTHING
    iscrowd: msgspec.Raw = _NOTHING


class Category(msgspec.Struct):
    """A class."""

    id: int | str
    name: str


class _Rle(msgspec.Struct):
    """RLE; ``counts`` may be a string, which is another encoding of it."""

    counts: list[int]
    size: tuple[int, int]


def truths_of(
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
    field = {"boxes": "bbox", "mask": "segmentation"}.get(known.kind or "")
    if field is None or all(_empty(getattr(note, field)) for note in annotations):
        return {}
    classes = _classes(name, annotations, categories, known)
    sizes = lru_cache(maxsize=None)(lambda image: picture_size(files[image], exif=known.exif))
    grouped: defaultdict[int | str, list[tuple[str, Annotation]]] = defaultdict(list)
    for index, note in enumerate(annotations):
        where = f"{name} annotations[{index}] ({files[note.image_id].name})"
        grouped[note.image_id].append((where, note))
    if known.kind == "boxes":
        return {image: _boxes(grouped[image], classes, sizes(image)) for image in files}
    rest = _background(known, classes)
    return {image: _mask(grouped[image], classes, rest, known, sizes(image)) for image in files}


def _empty(value: msgspec.Raw) -> bool:
    return bytes(value) in (b"null", b"[]", b"{}")


def _classes(
    name: str, annotations: Sequence[Annotation], categories: Sequence[Category], known: LabelSchema
) -> dict[int | str, str]:
    """The model's name of each category that is used."""
    used = {note.category_id for note in annotations}
    said = {c.id: c.name if known.labels else c.id for c in categories if c.id in used}
    found = {id: known.named(label) for id, label in said.items()}
    if unknown := [said[id] for id, label in found.items() if label is None]:
        raise unknown_classes(known, f"{name} categories", unknown)
    return {id: label for id, label in found.items() if label is not None}


def _background(known: LabelSchema, classes: Mapping[int | str, str]) -> int:
    """Class of what no annotation covers: the background, where the model has one."""
    if not known.labels:
        return -1 if "0" in classes.values() else 0
    plain = [label.strip("_").casefold() for label in known.labels]
    return plain.index(_BACKGROUND) if _BACKGROUND in plain else -1


def _boxes(
    notes: Sequence[tuple[str, Annotation]], classes: Mapping[int | str, str], size: Size | None
) -> TrueBoxes:
    return TrueBoxes(
        boxes=tuple(
            checked_box(
                _read(note.bbox, list[float], where, "[left, top, width, height]", bad_box),
                classes[note.category_id],
                where,
                size,
                crowd=bytes(note.iscrowd) in _YES,
            )
            for where, note in notes
        )
    )


def _mask(
    notes: Sequence[tuple[str, Annotation]],
    classes: Mapping[int | str, str],
    rest: int,
    known: LabelSchema,
    size: Size | None,
) -> DrawnMask:
    def area(where: str, note: Annotation) -> Area:
        label = classes[note.category_id]
        index = known.labels.index(label) if known.labels else int(label)
        if bytes(note.segmentation)[:1] == b"{":
            return Area(index=index, runs=_runs(note, where, size))
        return Area(index=index, polygons=tuple(_polygons(note, where, size)))

    return DrawnMask(areas=tuple(area(where, note) for where, note in notes), rest=rest)


def _runs(note: Annotation, where: str, size: Size | None) -> tuple[int, ...]:
    wanted = 'runs as {"counts": [numbers], "size": [height, width]}'
    read = _read(note.segmentation, _Rle, where, wanted, bad_mask)
    if size is not None and read.size != size:
        raise bad_mask(where, f"runs of size {list(size)}, as the photo's", f"{list(read.size)}")
    if min(read.counts, default=0) < 0 or sum(read.counts) != read.size[0] * read.size[1]:
        covered = f"runs of {sum(read.counts)} pixels"
        raise bad_mask(where, f"runs of {read.size[0] * read.size[1]} pixels in all", covered)
    return tuple(read.counts)


def _polygons(note: Annotation, where: str, size: Size | None) -> Iterator[tuple[float, ...]]:
    wanted = "polygons as [[x0, y0, x1, y1, x2, y2, ...], ...]"
    read = _read(note.segmentation, list[list[float]], where, wanted, bad_mask)
    if not read:
        raise bad_mask(where, wanted, "none, where other annotations have some")
    for polygon in read:
        if len(polygon) < 6 or len(polygon) % 2 or not np.isfinite(polygon).all():
            raise bad_mask(where, f"{wanted}, three corners at least", f"{len(polygon)} numbers")
        corners = np.reshape(polygon, (-1, 2))
        check_within("a polygon", corners.min(0), corners.max(0), size, where, bad_mask)
        yield tuple(polygon)


def _read(
    value: msgspec.Raw,
    type_: type[_T],
    where: str,
    wanted: str,
    bad: Callable[[str, str, str], DataError],
) -> _T:
    try:
        return msgspec.json.decode(value, type=type_)
    except msgspec.MsgspecError as error:
        raise bad(
            where, wanted, f"{bytes(value)[:40].decode(errors='replace')} ({error})"
        ) from error


class _Coco(msgspec.Struct):
    """The members of a COCO file that are read; it may hold any others."""

    images: list[Image]
    annotations: list[Annotation] = []
    categories: list[Category] = []


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
            hint="grant read permission, for example with chmod or chown",
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
