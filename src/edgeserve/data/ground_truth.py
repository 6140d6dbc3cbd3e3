"""Ground truth that is more than a class, checked while the data are read.

Boxes, spans and segments, and the class of each pixel: a mask file read and checked, or a mask
drawn of polygons and runs.

Source:
    W. Shimrat, "Algorithm 112: Position of point relative to polygon", Communications of the ACM
      5
    (1962) 434: a point lies inside where a ray from it crosses the edges an odd number of times.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from edgeserve.data.media import check_file
from edgeserve.errors import DataError
from edgeserve.files import sha256_bytes
from edgeserve.processing.image.resize import Size
from edgeserve.tasks.detection import TrueBox
from edgeserve.tasks.segmentation import Area, DrawnMask, MaskFile
from edgeserve.tasks.token_classification import TrueSpans
from edgeserve.tasks.voice_activity import TrueSegments
from edgeserve.types.vocabulary import Task

__all__ = [
    "TRUTH_KINDS",
    "UNLABELLED",
    "LabelSchema",
    "TruthKind",
    "bad_box",
    "bad_mask",
    "check_within",
    "checked_box",
    "checked_mask",
    "inside",
    "segments",
    "spans",
    "true_mask",
    "unknown_classes",
]


TruthKind = Literal["boxes", "mask", "segments", "spans"]

#: What a task's true answers are given as, in a line of a data.jsonl.
TRUTH_KINDS: dict[Task, TruthKind] = {
    "object-detection": "boxes",
    "image-segmentation": "mask",
    "token-classification": "spans",
    "voice-activity": "segments",
}
#: Labelling tools round: a box or polygon may reach this far beyond the picture, in pixels, and a
#: segment as far beyond the sound, in seconds.
_SLACK_PIXELS, _SLACK_SECONDS = 1.0, 0.1
_SHOWN = 5


@dataclass(frozen=True)
class LabelSchema:
    """The model that labels are read for.

    Attributes:
        task: Its task, which says what labels there may be.
        labels: What it calls its classes, by index (of spans: their kinds); none: by their number.
        exif: It turns pictures upright.
    """

    task: Task
    labels: tuple[str, ...] = ()
    exif: bool = True

    @property
    def kind(self) -> TruthKind | None:
        """What its true answers are given as; None: as labels, or not at all."""
        return TRUTH_KINDS.get(self.task)

    def named(self, said: str | int) -> str | None:
        """The model's name of a class that a label gives by name or index; None: it has none."""
        if not self.labels:
            return str(said) if str(said).isdecimal() else None
        if isinstance(said, int):
            return self.labels[said] if 0 <= said < len(self.labels) else None
        return said if said in self.labels else None


def unknown_classes(known: LabelSchema, where: str, said: Iterable[object]) -> DataError:
    """EDGE-DATA-023, naming some of the classes that the model does not have."""
    names = list(dict.fromkeys(map(str, said)))
    some = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    have = ", ".join(map(repr, known.labels[:_SHOWN])) + (
        ", ..." if len(known.labels) > _SHOWN else ""
    )
    return DataError(
        "EDGE-DATA-023",
        where,
        wanted=f"classes that the model has: {have or 'its labels are missing, so numbers from 0'}",
        got=some,
        hint="rename the classes as the model's labels are, or take them out of the data",
    )


def checked_box(
    xywh: Sequence[float], label: str, where: str, size: Size | None, *, crowd: bool = False
) -> TrueBox:
    """A box of left, top, width and height.

    Args:
        xywh: In pixels of the upright photo.
        label: Its class, as the model calls it.
        where: What to call it in errors.
        size: Height and width of the photo; None: not known.
        crowd: See `TrueBox`.

    Raises:
        DataError: EDGE-DATA-024, it has no area, or lies outside.
    """
    if len(xywh) != 4 or not all(map(math.isfinite, xywh)):
        raise bad_box(where, "four numbers: left, top, width, height", str(list(xywh)))
    left, top, width, height = map(float, xywh)
    if width <= 0 or height <= 0:
        raise bad_box(where, "a width and height above 0", f"{width:g} x {height:g}")
    right, bottom = left + width, top + height
    check_within("a box", (left, top), (right, bottom), size, where, bad_box)
    return TrueBox(xyxy=(left, top, right, bottom), label=label, crowd=crowd)


def check_within(
    what: str,
    low: Sequence[float],
    high: Sequence[float],
    size: Size | None,
    where: str,
    bad: Callable[[str, str, str], DataError],
) -> None:
    """Refuse what reaches out of its picture, by its least and its largest x and y.

    Raises:
        DataError: What ``bad`` makes of it.
    """
    if size is None or (
        min(low) >= -_SLACK_PIXELS
        and high[0] <= size[1] + _SLACK_PIXELS
        and high[1] <= size[0] + _SLACK_PIXELS
    ):
        return
    wanted = f"{what} within the picture of {size[1]} x {size[0]} pixels"
    got = f"one from ({low[0]:g}, {low[1]:g}) to ({high[0]:g}, {high[1]:g})"
    raise bad(where, wanted, got)


def bad_box(where: str, wanted: str, got: str) -> DataError:
    """EDGE-DATA-024, a box that is none, or not in its picture."""
    return DataError(
        "EDGE-DATA-024",
        where,
        wanted=wanted,
        got=got,
        hint="boxes are [left, top, width, height] in pixels of the upright photo; mend it or take "
        "it out",
    )


def bad_mask(where: str, wanted: str, got: str) -> DataError:
    """EDGE-DATA-025, a mask that does not fit its picture or is none."""
    return DataError(
        "EDGE-DATA-025",
        where,
        wanted=wanted,
        got=got,
        hint="a mask has the upright photo's size and one class index a pixel (255: unlabelled)",
    )


def spans(
    given: Sequence[tuple[int, int, str | int]], known: LabelSchema, where: str, length: int
) -> TrueSpans:
    """Labelled spans of a text of so many characters.

    Raises:
        DataError: EDGE-DATA-026, one is empty or lies beyond the text, or is there twice; -023.
    """
    unknown = [label for *_, label in given if known.named(label) is None]
    if unknown:
        raise unknown_classes(known, where, unknown)
    for start, end, _ in given:
        if not 0 <= start < end <= length:
            raise _bad_place(
                where,
                f"0 <= start < end <= {length}, the text's length in characters",
                f"a span from {start} to {end}",
            )
    found = sorted((start, end, known.named(label) or "") for start, end, label in given)
    if len(set(found)) < len(found):
        raise _bad_place(where, "each span once", "one that is there twice")
    return TrueSpans(spans=tuple(found))


def segments(
    given: Sequence[tuple[float, float]], where: str, seconds: float | None
) -> TrueSegments:
    """When somebody speaks, in a sound of so many seconds (None: not known).

    Raises:
        DataError: EDGE-DATA-026, one is empty or lies beyond the sound.
    """
    last = math.inf if seconds is None else seconds + _SLACK_SECONDS
    for start, end in given:
        if not 0 <= start < end <= last:
            length = "" if seconds is None else f" <= {seconds:g}, the sound's length in seconds"
            raise _bad_place(where, f"0 <= start < end{length}", f"{start:g} to {end:g}")
    return TrueSegments(segments=tuple(sorted((float(a), float(b)) for a, b in given)))


def _bad_place(where: str, wanted: str, got: str) -> DataError:
    return DataError(
        "EDGE-DATA-026",
        where,
        wanted=wanted,
        got=got,
        hint="spans count characters of the text as it is given, segments count seconds",
    )


#: In a mask that was read; in a file it is 255.
UNLABELLED = -1
_FILE_UNLABELLED = 255
#: Pillow's names of pictures that hold one whole number a pixel.
_INDEXED = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")


def checked_mask(file: Path, known: LabelSchema, where: str, size: Size | None) -> MaskFile:
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
        raise bad_mask(
            f"{where}, mask {file.name}",
            f"a mask of {size[1]} x {size[0]} pixels, as the photo's",
            f"one of {mask.shape[1]} x {mask.shape[0]}",
        )
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
        raise bad_mask(truth.path, wanted, f"{mask.shape[1]} x {mask.shape[0]}")
    return mask


def _decoded(data: bytes, where: str) -> np.ndarray:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                if image.mode not in _INDEXED or image.format not in ("PNG", "BMP", "TIFF", "GIF"):
                    got = f"a {image.format} picture of mode {image.mode}"
                    raise bad_mask(where, "a PNG of one class index a pixel (grey or palette)", got)
                mask = np.asarray(image).astype(np.int32)
    except DataError:
        raise
    except Exception as error:  # plugins raise whatever a broken file leads them to
        raise bad_mask(where, "a picture of class indexes", str(error)) from error
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
