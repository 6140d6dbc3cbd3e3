"""Masks as a user's reference answers them, and true masks in the user's data.

Source:
    W. Shimrat, "Algorithm 112: Position of point relative to polygon", Communications of the ACM 5
    (1962) 434: a point lies inside where a ray from it crosses the edges an odd number of times.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.data.ground_truth import (
    CocoImage,
    LabelSchema,
    TruthReader,
    check_within,
    read_raw,
    truth_error,
    unknown_classes,
)
from edgeserve.data.media import check_file
from edgeserve.errors import DataError
from edgeserve.files import sha256_bytes
from edgeserve.tasks.answers import Fields, field_answers
from edgeserve.tasks.base import DecisionRule
from edgeserve.tasks.segmentation import Area, DrawnMask, MaskFile, Segmentation
from edgeserve.types.steps import Size


def _segmentation(fields: Fields, labels: Sequence[str]) -> Segmentation:
    margin = fields.get("margin")
    return Segmentation(
        mask=np.asarray(fields["mask"]),
        labels=tuple(fields.get("labels") or labels),
        margin=None if margin is None else np.asarray(margin),
    )


def _complete(rule: DecisionRule, record: Segmentation, program: Segmentation) -> Segmentation:
    labels, margin = record.labels or program.labels, record.margin
    margin = program.margin if margin is None else margin
    return msgspec.structs.replace(record, margin=margin, labels=labels)


ANSWERS = field_answers(
    Segmentation,
    "mask [H, W] and, optionally, labels and margin [H, W]",
    _segmentation,
    finite=lambda record: (record.margin,),
    shares=lambda record: (record.margin,),
    complete=_complete,
    own=lambda record, scored: record.mask,
)


#: In a mask that was read; in a file it is 255.
UNLABELLED = -1


_FILE_UNLABELLED = 255
#: Pillow's names of pictures that hold one whole number a pixel.
_INDEXED = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")
#: What the class of all that is not annotated is called, underscores and case aside.
_BACKGROUND = "background"


class _Rle(msgspec.Struct):
    """RLE; ``counts`` may be a string, which is another encoding of it."""

    counts: list[int]
    size: tuple[int, int]


#: A mask that does not fit its picture or is none.
_bad_mask = partial(
    truth_error,
    "EDGE-DATA-025",
    "a mask has the upright photo's size and one class index a pixel (255: unlabelled)",
)


def _checked_mask(file: Path, known: LabelSchema, where: str, size: Size | None) -> MaskFile:
    """A mask file that fits its picture.

    Args:
        file: A picture of class indexes.
        known: The model; a mask may hold indexes of its labels.
        where: What to call it in errors.
        size: Height and width of the upright photo; None: not known.

    Raises:
        DataError: EDGE-DATA-003 to -005 the file cannot be read, -025 it is no mask or of another
            size, -023 it holds an index that is none of the labels'.
    """
    check_file(file, where)
    data = file.read_bytes()
    mask = _decoded(data, f"{where}, mask {file.name}")
    if size is not None and mask.shape != size:
        wanted = f"a mask of {size[1]} x {size[0]} pixels, as the photo's"
        got = f"one of {mask.shape[1]} x {mask.shape[0]}"
        raise _bad_mask(f"{where}, mask {file.name}", wanted, got)
    indexes = np.unique(mask)
    if known.labels and (beyond := indexes[indexes >= len(known.labels)]).size:
        raise unknown_classes(known, f"{where}, mask {file.name}", beyond.tolist())
    return MaskFile(path=str(file.resolve()), sha256=sha256_bytes(data))


def true_mask(truth: MaskFile | DrawnMask, size: Size) -> np.ndarray:
    """The class index of each pixel, int32 [H, W]; -1 where it is unlabelled.

    Args:
        truth: The mask.
        size: Height and width of the upright photo.

    Raises:
        DataError: EDGE-DATA-021 the file has changed since it was checked, -025 another size.
    """
    if isinstance(truth, DrawnMask):
        return _drawn(truth, size)
    try:
        data = Path(truth.path).read_bytes()
    except OSError:
        data = b""
    if sha256_bytes(data) != truth.sha256:
        raise DataError(
            "EDGE-DATA-021",
            truth.path,
            wanted="the mask that was listed",
            got="other bytes",
            hint="run validate again with --data",
        )
    mask = _decoded(data, truth.path)
    if mask.shape != size:
        wanted = f"{size[1]} x {size[0]} pixels, as the photo's"
        raise _bad_mask(truth.path, wanted, f"{mask.shape[1]} x {mask.shape[0]}")
    return mask


def _decoded(data: bytes, where: str) -> np.ndarray:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                if image.mode not in _INDEXED or image.format not in ("PNG", "BMP", "TIFF", "GIF"):
                    got = f"a {image.format} picture of mode {image.mode}"
                    raise _bad_mask(
                        where, "a PNG of one class index a pixel (grey or palette)", got
                    )
                mask = np.asarray(image).astype(np.int32)
    except DataError:
        raise
    except Exception as error:  # plugins raise whatever a broken file leads them to
        raise _bad_mask(where, "a picture of class indexes", str(error)) from error
    return np.where(mask == _FILE_UNLABELLED, UNLABELLED, mask)


def _drawn(truth: DrawnMask, size: Size) -> np.ndarray:
    mask = np.full(size, truth.rest, np.int32)
    covered = np.zeros(size, bool)
    for area in truth.areas:
        mine = _covered(area, size)
        other = mine & covered & (mask != area.index)
        mask[mine] = area.index
        mask[other] = UNLABELLED  # which of two classes lies on top, nobody has said
        covered |= mine
    return mask


def _covered(area: Area, size: Size) -> np.ndarray:
    """Pixels of one area: bool [H, W]."""
    if area.runs:
        inner = np.arange(len(area.runs)) % 2 == 1
        return np.repeat(inner, area.runs).reshape(size[::-1]).T
    found = np.zeros(size, bool)
    for polygon in area.polygons:
        found |= inside(polygon, size)
    return found


def inside(polygon: Sequence[float], size: Size) -> np.ndarray:
    """Pixels whose centre lies in a polygon ``x0, y0, x1, y1, ...``: bool [H, W].

    By the parity of the edges that lie to the left, so that of two polygons which share an edge
    each pixel belongs to one.
    """
    height, width = size
    corners = np.asarray(polygon, np.float64).reshape(-1, 2)
    turns = np.zeros((height, width + 1), np.uint8)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        low, high = min(y0, y1), max(y0, y1)
        first, last = (int(np.ceil(np.clip(y, 0, height) - 0.5)) for y in (low, high))
        rows = np.arange(first, last)
        if not rows.size:
            continue
        crossed = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        turns[rows, np.ceil(np.clip(crossed, 0, width) - 0.5).astype(int)] ^= 1
    return np.bitwise_xor.accumulate(turns, axis=1)[:, :width].astype(bool)


def _from_coco(image: CocoImage) -> DrawnMask:
    """The areas of the annotations; the rest is background, where the model has one."""
    known, size = image.known, image.size

    def area(where: str, note: Any) -> Area:
        label = image.classes[note.category_id]
        index = known.labels.index(label) if known.labels else int(label)
        if bytes(note.segmentation)[:1] == b"{":
            return Area(index=index, runs=_runs(note.segmentation, where, size))
        return Area(index=index, polygons=tuple(_polygons(note.segmentation, where, size)))

    areas = tuple(area(where, note) for where, note in image.notes)
    return DrawnMask(areas=areas, rest=_background(known, image.classes))


def _background(known: LabelSchema, classes: Mapping[int | str, str]) -> int:
    """Class of what no annotation covers: the background, where the model has one."""
    if not known.labels:
        return -1 if "0" in classes.values() else 0
    plain = [label.strip("_").casefold() for label in known.labels]
    return plain.index(_BACKGROUND) if _BACKGROUND in plain else -1


def _runs(given: msgspec.Raw, where: str, size: Size | None) -> tuple[int, ...]:
    wanted = 'runs as {"counts": [numbers], "size": [height, width]}'
    read = read_raw(given, _Rle, where, wanted, _bad_mask)
    if size is not None and read.size != size:
        raise _bad_mask(where, f"runs of size {list(size)}, as the photo's", f"{list(read.size)}")
    if min(read.counts, default=0) < 0 or sum(read.counts) != read.size[0] * read.size[1]:
        covered = f"runs of {sum(read.counts)} pixels"
        raise _bad_mask(where, f"runs of {read.size[0] * read.size[1]} pixels in all", covered)
    return tuple(read.counts)


def _polygons(given: msgspec.Raw, where: str, size: Size | None) -> Iterator[tuple[float, ...]]:
    wanted = "polygons as [[x0, y0, x1, y1, x2, y2, ...], ...]"
    read = read_raw(given, list[list[float]], where, wanted, _bad_mask)
    if not read:
        raise _bad_mask(where, wanted, "none, where other annotations have some")
    for polygon in read:
        if len(polygon) < 6 or len(polygon) % 2 or not np.isfinite(polygon).all():
            raise _bad_mask(where, f"{wanted}, three corners at least", f"{len(polygon)} numbers")
        corners = np.reshape(polygon, (-1, 2))
        check_within("a polygon", corners.min(0), corners.max(0), size, where, _bad_mask)
        yield tuple(polygon)


TRUTH = TruthReader(
    key="mask",
    type=str,
    from_line=lambda given, line: _checked_mask(
        line.folder / given, line.known, line.where, line.size
    ),
    coco=("segmentation",),
    from_coco=_from_coco,
)
