"""Ground truth that is more than a class: what its readers, one a task, share.

What a task's true answers look like in a ``data.jsonl`` and in a COCO json says the part ``truth``
of its folder (`edgeserve.tasks`): `TruthReader`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from edgeserve import tasks
from edgeserve.errors import DataError, InputError
from edgeserve.processing.audio.source import read_wav
from edgeserve.processing.steps.decode import orientation
from edgeserve.tasks.values import Truth
from edgeserve.types.steps import Size
from edgeserve.types.vocabulary import Task

_T = TypeVar("_T")
#: Labelling tools round: a box or polygon may reach this far beyond the picture, in pixels.
_SLACK_PIXELS = 1.0
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
    def truth(self) -> TruthReader | None:
        """What reads its true answers; None: they are labels, or there are none."""
        return _truth_reader(self.task)

    def named(self, given: str | int) -> str | None:
        """The model's name of a class that a label gives by name or index; None: it has none."""
        if not self.labels:
            return str(given) if str(given).isdecimal() else None
        if isinstance(given, int):
            return self.labels[given] if 0 <= given < len(self.labels) else None
        return given if given in self.labels else None


@dataclass(frozen=True)
class LineInput:
    """The input of a line of a ``data.jsonl`` that says what is true of it.

    Attributes:
        where: What to call the line in errors.
        known: The model.
        folder: The table's.
        file: The input's; None: it is a text.
        given: The text.
    """

    where: str
    known: LabelSchema
    folder: Path
    file: Path | None
    given: str | None

    @cached_property
    def size(self) -> Size | None:
        """Height and width of the upright photo; None: not known."""
        return picture_size(self.file, exif=self.known.exif) if self.file else None

    @property
    def seconds(self) -> float | None:
        """Length of the sound; None: not known."""
        return _sound_seconds(self.file) if self.file else None

    @property
    def text(self) -> str:
        """The text that the model is given."""
        if self.file is None:
            return self.given or ""
        return self.file.read_bytes().decode("utf-8-sig", "replace")


@dataclass(frozen=True)
class CocoImage:
    """An image of a COCO json.

    Attributes:
        notes: Its annotations, each with what to call it in errors. A field that none of them has
            is the JSON ``null``.
        classes: The model's name of each category that is used anywhere in the json.
        known: The model.
        size: Height and width of the upright photo; None: not known.
    """

    notes: Sequence[tuple[str, Any]]
    classes: Mapping[int | str, str]
    known: LabelSchema
    size: Size | None


class TruthReader(NamedTuple):
    """How a task's true answers are given: the part ``truth`` of its folder.

    Attributes:
        key: Their key in a line of a ``data.jsonl``: "boxes".
        type: What stands there.
        from_line: ``(value, line)`` to what is true. Raises `DataError`.
        coco: Fields of a COCO annotation that are read; the first one says whether there are true
            answers at all. None: a COCO json does not tell.
        from_coco: ``(image)`` to what is true. Raises `DataError`.
        classes: Whether the model's labels name the categories of a COCO json.
    """

    key: str
    type: Any
    from_line: Callable[[Any, LineInput], Truth]
    coco: tuple[str, ...] = ()
    from_coco: Callable[[CocoImage], Truth] | None = None
    classes: bool = True


def _truth_reader(task: Task) -> TruthReader | None:
    """What reads a task's true answers; None where they are labels, or there are none."""
    found = tasks.part(task, "truth") if tasks.decides(task) else None
    return getattr(found, "TRUTH", None)


def truth_readers() -> list[TruthReader]:
    """Those of all tasks, each once."""
    found = (_truth_reader(task) for task in tasks.REGISTRY)
    return list({each.key: each for each in found if each is not None}.values())


def unknown_classes(known: LabelSchema, where: str, given: Iterable[object]) -> DataError:
    """EDGE-DATA-023, naming some of the classes that the model does not have."""
    names = list(dict.fromkeys(map(str, given)))
    some = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    have = ", ".join(map(repr, known.labels[:_SHOWN])) + (
        ", ..." if len(known.labels) > _SHOWN else ""
    )
    wanted = f"classes that the model has: {have or 'its labels are missing, so numbers from 0'}"
    hint = "rename the classes as the model's labels are, or take them out of the data"
    return DataError("EDGE-DATA-023", where, wanted=wanted, got=some, hint=hint)


def check_within(
    what: str,
    low: Sequence[float],
    high: Sequence[float],
    size: Size | None,
    where: str,
    bad: BadTruth,
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


#: ``(where, wanted, got)`` to the error of a true answer that cannot be used.
BadTruth = Callable[[str, str, str], DataError]


def truth_error(code: str, hint: str, where: str, wanted: str, got: str) -> DataError:
    """The error of a true answer that is wrong in its input."""
    return DataError(code, where, wanted=wanted, got=got, hint=hint)


#: A box that is none, or not in its picture.
bad_box: BadTruth = partial(
    truth_error,
    "EDGE-DATA-024",
    "boxes are [left, top, width, height] in pixels of the upright photo; mend it or take it out",
)
#: A span or segment that does not lie in its input.
bad_place: BadTruth = partial(
    truth_error,
    "EDGE-DATA-026",
    "spans count characters of the text as it is given, segments count seconds",
)


def is_crowd(note: Any) -> bool:
    """Whether an annotation of COCO is of a crowd rather than of one thing."""
    return bytes(note.iscrowd) in (b"1", b"true")


def read_raw(value: msgspec.Raw, type_: type[_T], where: str, wanted: str, bad: BadTruth) -> _T:
    """A field of a COCO annotation.

    Raises:
        DataError: What ``bad`` makes of a value of another type.
    """
    try:
        return msgspec.json.decode(value, type=type_)
    except msgspec.MsgspecError as error:
        raise bad(
            where, wanted, f"{bytes(value)[:40].decode(errors='replace')} ({error})"
        ) from error


#: Orientations that lie on their side.
_TURNED = (5, 6, 7, 8)


def picture_size(path: Path, *, exif: bool = True) -> Size | None:
    """Height and width of a picture that decode/1 will read.

    Args:
        path: Its file.
        exif: The step turns it upright.

    Returns:
        None where the header cannot be read: whoever decodes it says why.
    """
    try:
        from PIL import Image

        with warnings.catch_warnings():  # of metadata, which the decoder hears as well
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                width, height = image.size
                turn = orientation(image) if exif else 1
    except Exception:  # plugins raise whatever a broken header leads them to
        return None
    return (width, height) if turn in _TURNED else (height, width)


def _sound_seconds(path: Path) -> float | None:
    """Length of a WAV in seconds; None where it cannot be read as one."""
    try:
        wav = read_wav(path.read_bytes())
    except (OSError, InputError):
        return None
    return wav.frames / wav.rate if wav.rate else None
