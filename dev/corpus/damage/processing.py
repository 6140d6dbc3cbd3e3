"""Damage done to what is packaged around the file: the file is right, its description is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.corpus.paths import write_atomic
from dev.corpus.tasks.language import LENGTH, tokenizer_json
from edgeserve.files import describe
from edgeserve.types.base import decode, encode
from edgeserve.types.source import Exported

Said = dict[str, Any]
#: Takes source.json as JSON, the severity, and the folder that holds it; changes it in place.
Repackaging = Callable[[Said, Any, Path], None]
REPACKAGINGS: dict[str, Repackaging] = {}
SWEEPS: dict[str, tuple[Any, ...]] = {}
FITS: dict[str, tuple[str, ...]] = {}

_TEXT = ("topics", "pairs")
_PHOTO = ("digits", "segments", "boxes")


def _package(tasks: tuple[str, ...], *sweep: Any) -> Callable[[Repackaging], Repackaging]:
    def register(function: Repackaging) -> Repackaging:
        name = function.__name__.replace("_", "-")
        REPACKAGINGS[name], SWEEPS[name], FITS[name] = function, sweep, tasks
        return function

    return register


def repackaged(kind: str, severity: int, source: Path, out: Path) -> None:
    """Copy an export with its description changed: ``out`` is a source folder like ``source``."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    said = json.loads((source / "source.json").read_bytes())
    REPACKAGINGS[kind](said, SWEEPS[kind][severity], out)
    write_atomic(out / "source.json", encode(decode(json.dumps(said).encode(), Exported)))


def _step(said: Said, kind: str) -> Said:
    steps = said["processing"]["inputs"][0]["steps"]
    found: Said = next(step for step in steps if step["step"] == kind)
    return found


def _tokenize(said: Said, **changes: Any) -> None:
    for each in said["processing"]["inputs"]:
        each["steps"][0].update(changes)


@_package(("digits",), 1.0, 0.4, 0.15, 0.05, 0.01)
def mean_wrong(said: Said, off: float, folder: Path) -> None:
    """The mean is ``off`` too large, where levels are 0 to 1."""
    step = _step(said, "normalize/1")
    step["bias"] = [b - off * s * 255 for b, s in zip(step["bias"], step["scale"], strict=True)]


@_package(("digits",), 5.0, 2.0, 1.3, 1.05, 1.01)
def std_wrong(said: Said, factor: float, folder: Path) -> None:
    """The standard deviation is divided by a factor."""
    step = _step(said, "normalize/1")
    step["scale"] = [s * factor for s in step["scale"]]
    step["bias"] = [b * factor for b in step["bias"]]


@_package(("digits",), 1.0, 0.5, 0.2, 0.05)
def normalized_twice(said: Said, share: float, folder: Path) -> None:
    """What is normalised (levels 0 to 1) is normalised again, in a share."""
    step = _step(said, "normalize/1")
    once = list(zip(step["scale"], step["bias"], strict=True))
    step["scale"] = [s * (1 - share) + share * s * s * 255 for s, _ in once]
    step["bias"] = [b * (1 - share) + share * (b * s * 255 + b) for s, b in once]


@_package(("digits",), 255.0, 0.004, 0.5, 256 / 255)
def rescale_wrong(said: Said, factor: float, folder: Path) -> None:
    """Levels are not divided by 255, or twice, or by another number; the mean stays."""
    step = _step(said, "normalize/1")
    step["scale"] = [s * factor for s in step["scale"]]


@_package(_PHOTO, "nearest", "lanczos", "bicubic")
def resize_filter(said: Said, name: str, folder: Path) -> None:
    """Another kernel."""
    _step(said, "resize/1")["filter"] = name


@_package(("digits",), "letterbox", "exact")
def resize_fit(said: Said, fit: str, folder: Path) -> None:
    """The photo is squeezed into the square."""
    _step(said, "resize/1")["fit"] = fit


@_package(("digits",), 20, 10, 6, 3, 1, -2)
def crop_off(said: Said, by: int, folder: Path) -> None:
    """The shorter side becomes ``by`` pixels longer than meant before the window is cut."""
    step = _step(said, "resize/1")
    step["height"] += by
    step["width"] += by


@_package(("digits",), "half-even")
def crop_rounding(said: Said, rounding: str, folder: Path) -> None:
    """An odd pixel goes to the other side."""
    _step(said, "center_crop/1")["rounding"] = rounding


@_package(("digits",), False)
def exif_ignored(said: Said, exif: bool, folder: Path) -> None:
    """Photos are not turned upright."""
    _step(said, "decode/1")["exif"] = exif


@_package(("digits", "topics"), 10, 4, 3, 2)
def labels_shifted(said: Said, count: int, folder: Path) -> None:
    """The first ``count`` labels stand one place further on."""
    labels = said["labels"]
    count = min(count, len(labels))
    said["labels"] = [labels[count - 1], *labels[: count - 1], *labels[count:]]


@_package(_TEXT, True)
def casing(said: Said, cased: bool, folder: Path) -> None:
    """A tokenizer that does not make letters small."""
    _tokenizer(said, tokenizer_json(lower=False), folder)


@_package(_TEXT, 29, 12, 4, 1)
def words_unknown(said: Said, count: int, folder: Path) -> None:
    """A tokenizer that lacks words of little meaning."""
    _tokenizer(said, tokenizer_json(unknown=count), folder)


def _tokenizer(said: Said, text: str, folder: Path) -> None:
    write_atomic(folder / "assets" / "tokenizer.json", text.encode())
    entry = describe(folder, "assets/tokenizer.json")
    held = {"path": entry.path, "size": entry.size, "sha256": entry.sha256}
    _tokenize(said, tokenizer=held)
    said["assets"] = [held]


@_package(_TEXT, "left")
def padding_side(said: Said, side: str, folder: Path) -> None:
    """Rows are padded on the left."""
    _tokenize(said, padding=side)


@_package(_TEXT, "left")
def truncation_side(said: Said, side: str, folder: Path) -> None:
    """Of a long text the start is cut off."""
    _tokenize(said, truncation=side)


@_package(_TEXT, 6, 10, 14, 18, LENGTH - 1)
def truncated_short(said: Said, length: int, folder: Path) -> None:
    """Rows are cut off at fewer tokens."""
    _tokenize(said, max_length=length)


@_package(_TEXT, 7)
def padding_id(said: Said, pad: int, folder: Path) -> None:
    """Padded with another token; the mask hides it."""
    said["processing"]["inputs"][0]["steps"][0]["pad_id"] = pad


@_package(("pairs",), "cls", "last", "max")
def pool_mode(said: Said, mode: str, folder: Path) -> None:
    """One token's vector, or the largest of each component, in the place of the mean."""
    said["processing"]["outputs"][0]["mode"] = mode


@_package(("pairs",), True)
def length_kept(said: Said, kept: bool, folder: Path) -> None:
    """Vectors are not made of length 1, which a cosine does not see."""
    said["processing"]["outputs"] = said["processing"]["outputs"][:1]


@_package(("boxes",), "xyxy", "xywh")
def box_form(said: Said, form: str, folder: Path) -> None:
    """Centre and size are taken for two corners, or for a corner and size."""
    said["processing"]["outputs"][0]["form"] = form


@_package(("boxes",), 0.95, 0.8, 0.6, 0.52, 0.3)
def threshold_wrong(said: Said, threshold: float, folder: Path) -> None:
    """Boxes are kept from another score on."""
    said["processing"]["outputs"][0]["threshold"] = threshold
