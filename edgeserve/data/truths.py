"""True labels that are more than a class, checked while the data are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgeserve.errors import DataError
from edgeserve.processing.geometry import Size
from edgeserve.types.truths import TrueBox, TrueSegments, TrueSpans
from edgeserve.types.words import Task

__all__ = [
    "KINDS",
    "Known",
    "TruthKind",
    "bad_box",
    "bad_mask",
    "check_within",
    "checked_box",
    "segments",
    "spans",
    "unknown_classes",
]

TruthKind = Literal["boxes", "mask", "segments", "spans"]

#: What a task's true answers are given as, in a line of a data.jsonl.
KINDS: dict[Task, TruthKind] = {
    "object-detection": "boxes",
    "image-segmentation": "mask",
    "token-classification": "spans",
    "voice-activity": "segments",
}
#: Labelling tools round: a box or polygon may reach this far beyond the picture, in pixels, and a
#: segment as far beyond the sound, in seconds.
_BEYOND, _BEYOND_SECONDS = 1.0, 0.1
_SHOWN = 5


@dataclass(frozen=True)
class Known:
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
        return KINDS.get(self.task)

    def named(self, said: str | int) -> str | None:
        """The model's name of a class that a label gives by name or index; None: it has none."""
        if not self.labels:
            return str(said) if str(said).isdecimal() else None
        if isinstance(said, int):
            return self.labels[said] if 0 <= said < len(self.labels) else None
        return said if said in self.labels else None


def unknown_classes(known: Known, where: str, said: Iterable[object]) -> DataError:
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
        min(low) >= -_BEYOND and high[0] <= size[1] + _BEYOND and high[1] <= size[0] + _BEYOND
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
    given: Sequence[tuple[int, int, str | int]], known: Known, where: str, length: int
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
    last = math.inf if seconds is None else seconds + _BEYOND_SECONDS
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
