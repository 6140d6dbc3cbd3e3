"""Which step of the server's preprocessing differs from the packaged one, found by trying.

Where the server and the exported program answer pictures differently though their weights are the
same, the cause is a step before the model. Each way in which such steps are known to differ is
tried alone: if the program then answers as the server does, that step is named. Several steps at
once are not searched for.

Resampling without antialiasing samples at half-pixel centres, as OpenCV and torchvision do; with
antialiasing the kernel is widened by the scale, as Pillow does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeserve import tasks
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.processing.image.plan import ImagePlan
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import decode
from edgeserve.processing.steps.resize import Resize
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.embedding.device import cosine_distances
from edgeserve.types.steps import PixelStep
from edgeserve.validate.reference.reference import Reference, ReferenceAnswer

if TYPE_CHECKING:
    import PIL.Image

#: Differences below this are rounding, and need no explanation.
SEEN = 1e-3
#: A change explains the difference where no more than this share of it is left.
_EXPLAINED = 0.1
#: Pictures that each change is tried on: those that differ most.
_PICTURES = 8
_SECONDS = 30.0

#: A picture to its levels, float32 [row, column, channel] from 0 to 255.
_Levels = Callable[["PIL.Image.Image"], np.ndarray]


@dataclass(frozen=True)
class ProcessingChange:
    """One way in which a server's preprocessing may differ.

    Attributes:
        words: What the server does instead: "resize without antialiasing".
        levels: Levels of a picture; None: those of the packaged steps.
        affine: Scale and bias of each channel; None: the packaged ones.
        reverse: Channels reach the model in the opposite order.
    """

    words: str
    levels: _Levels | None = None
    affine: tuple[np.ndarray, np.ndarray] | None = None
    reverse: bool = False


@dataclass(frozen=True)
class AskedPicture:
    """A picture, its feed by the packaged processing, and what the server said to it."""

    raw: RawInput
    feed: Feed
    answer: ReferenceAnswer


def distance(oracle: Reference, answer: ReferenceAnswer, program: ReferenceAnswer) -> float:
    """How far the program's answer is from the server's: 0 the same, 1 or more all of it another.

    The largest difference of an output on its scale, of a class's score, or of a cosine; of many
    decisions the share that flips, and the largest difference of a score.
    """
    if answer.own:
        return max(_apart(answer.outputs[name], program.outputs[name]) for name in answer.outputs)
    record, other = answer.record, program.program
    if record is None or other is None:
        return 0.0
    if isinstance(record, Embedding):
        if not isinstance(other, Embedding) or record.vector.shape != other.vector.shape:
            return 1.0
        return float(cosine_distances(record.vector[None], other.vector[None])[0])
    if isinstance(record, Classification) and isinstance(other, Classification) and answer.scored:
        return _scores_apart(record, other)
    units = tasks.compare(oracle.rule, record, other)
    flips = units.flips / units.n if units.n else 0.0
    return flips + (tasks.gap(oracle.rule, record, other) if answer.scored else 0.0)


def _scores_apart(record: Classification, other: Classification) -> float:
    """The largest difference of a class's score, of the classes that both list."""
    scores = dict(other.top) | {other.label: other.score}
    both = {**dict(record.top), record.label: record.score}
    known = [abs(score - scores[label]) for label, score in both.items() if label in scores]
    return max(known, default=1.0)


def _apart(wanted: np.ndarray, got: np.ndarray) -> float:
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(wanted.astype(np.float64) - got).max(initial=0.0)) / scale


def search(oracle: Reference, asked: Sequence[AskedPicture], apart: Sequence[float]) -> str:
    """Name the step whose change makes the program answer as the server does.

    Args:
        oracle: The server and the program.
        asked: Pictures that the server has answered.
        apart: How far the program's answer to each is from the server's.

    Returns:
        What the server does instead; "several steps, or other weights" where no single change
        explains the difference.
    """
    order = np.argsort(apart)[::-1][:_PICTURES]
    some = [asked[i] for i in order]
    best, left = "", _EXPLAINED * float(np.mean([apart[i] for i in order]))
    began = time.monotonic()
    for change in _changes(ImagePlan(oracle.exported.processing.inputs[0])):
        if time.monotonic() - began > _SECONDS:
            break
        feeds = [_feed(oracle, each, change) for each in some]
        after = float(np.mean(_distances(oracle, some, feeds)))
        if after < left:
            best, left = change.words, after
    return best or "several steps, or other weights"


def _distances(
    oracle: Reference, asked: Sequence[AskedPicture], feeds: Sequence[Feed]
) -> list[float]:
    """How far the program is from the server where it is given these feeds."""
    outputs = oracle.runner.run(feeds)
    programs = [oracle.program_answer(*pair) for pair in zip(outputs, feeds, strict=True)]
    pairs = zip(asked, programs, strict=True)
    return [distance(oracle, each.answer, program) for each, program in pairs]


def _feed(oracle: Reference, asked: AskedPicture, change: ProcessingChange) -> Feed:
    """The packaged processing's feed, with the tensor that the change makes."""
    feed = dict(asked.feed)
    plan = ImagePlan(oracle.exported.processing.inputs[0])
    image = decode(plan.decode, asked.raw)  # type: ignore[arg-type]
    levels = (change.levels or _packaged(plan))(image)
    scale, bias = change.affine or _affine(plan)
    tensor = (levels * scale + bias).astype(np.float32)
    tensor = tensor[..., ::-1] if change.reverse else tensor
    made = tensor.transpose(2, 0, 1) if plan.tail.planar else tensor
    name = plan.name
    if feed[name].shape[1:] == made.shape:
        feed[name] = np.ascontiguousarray(made[None]).astype(feed[name].dtype)
    return feed


def _affine(plan: ImagePlan) -> tuple[np.ndarray, np.ndarray]:
    return plan.tail.affine


def _packaged(plan: ImagePlan) -> _Levels:
    return _with_steps([step for _, step in plan.pixels])


def _with_steps(steps: Sequence[PixelStep | _Levels]) -> _Levels:
    """Levels after these steps, of which those that are no packaged step make floats."""

    def levels(image: PIL.Image.Image) -> np.ndarray:
        from PIL import Image

        for step in steps:
            if isinstance(step, PixelStep):
                image = step.apply(image)
            else:
                made = step(image)
                if step is steps[-1]:
                    return made
                image = Image.fromarray(np.clip(np.rint(made), 0, 255).astype(np.uint8))
        return np.asarray(image, np.float32)

    return levels


def _changes(plan: ImagePlan) -> Iterator[ProcessingChange]:
    """Every single change, the likelier first."""
    steps = [step for _, step in plan.pixels]
    yield from _colour_changes(plan)
    yield from _level_changes(plan)
    for place, step in enumerate(steps):
        before, after = steps[:place], steps[place + 1 :]
        if isinstance(step, Resize):
            for words, changed in _resizes(step, plan):
                yield ProcessingChange(words, _with_steps([*before, changed, *after]))
        if isinstance(step, CenterCrop):
            for words, some in _crops(step, before):
                yield ProcessingChange(words, _with_steps([*some, *after]))
    if steps and not any(isinstance(step, CenterCrop) for step in steps):
        for words, some in _added_crops(steps):
            yield ProcessingChange(words, _with_steps(some))


def _colour_changes(plan: ImagePlan) -> Iterator[ProcessingChange]:
    packaged = _packaged(plan)
    scale, bias = _affine(plan)
    same = (scale[::-1], bias[::-1])
    yield ProcessingChange("channels in the order BGR", affine=same, reverse=True)
    yield ProcessingChange("channels in the order BGR after the normalization", reverse=True)

    def luma(image: PIL.Image.Image) -> np.ndarray:
        return packaged(image.convert("L").convert("RGB"))

    def mean(image: PIL.Image.Image) -> np.ndarray:
        levels = packaged(image)
        return np.repeat(levels.mean(-1, keepdims=True), 3, -1)

    yield ProcessingChange("grey levels by luma (0.299 R + 0.587 G + 0.114 B)", luma)
    yield ProcessingChange("grey levels by the mean of R, G and B", mean)


_MEAN_STD = {
    "levels scaled to 0..1": (0.0, 1.0),
    "levels scaled to -1..1": (0.5, 0.5),
    "mean and std of ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mean and std of CLIP": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "the mean of ImageNet without its std": ((0.485, 0.456, 0.406), 1.0),
    "the mean of 0.5 without a std": (0.5, 1.0),
    "levels not scaled": (0.0, 1 / 255),
    "mean and std of ImageNet on levels that are not scaled": (
        (123.675 / 255, 116.28 / 255, 103.53 / 255),
        (58.395 / 255**2, 57.12 / 255**2, 57.375 / 255**2),
    ),
    "the mean 127.5 and scale 1/128": (127.5 / 255, 128 / 255),
}


def _level_changes(plan: ImagePlan) -> Iterator[ProcessingChange]:
    """Other means and stds, other divisors, and levels truncated or not rounded."""
    scale, bias = _affine(plan)
    for words, (mean, std) in _MEAN_STD.items():
        wide = np.ones(3) / (255 * np.broadcast_to(std, 3))
        shift = -np.broadcast_to(mean, 3) / np.broadcast_to(std, 3)
        if not (np.allclose(wide, scale, rtol=1e-4) and np.allclose(shift, bias, atol=1e-4)):
            yield ProcessingChange(words, affine=(wide, shift))
    yield ProcessingChange("a mean of 0", affine=(scale, np.zeros(3)))
    yield ProcessingChange("levels divided by 256", affine=(scale * 255 / 256, bias))
    if bias.any() and not np.allclose(bias, bias[0]):
        yield ProcessingChange("mean and std in the order BGR", affine=(scale[::-1], bias[::-1]))


_FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


def _resizes(step: Resize, plan: ImagePlan) -> Iterator[tuple[str, PixelStep | _Levels]]:
    for name in _FILTERS:
        if name != step.filter:
            yield f"resize with the filter {name}", _pillow(step, name)
    for name in ("bilinear", "bicubic"):
        yield f"resize {name} without antialiasing", _resampled(step, name, antialias=False)
    yield "resize by area", _resampled(step, "area", antialias=True)
    yield "resize nearest by the upper left pixel", _resampled(step, "floor", antialias=False)
    exact = _resampled(step, step.filter, antialias=True)
    yield "resize without rounding to 8 bits", lambda image: np.asarray(exact(image))
    yield "levels cut off instead of rounded after the resize", lambda i: np.floor(exact(i))
    for fit in ("exact", "shortest-edge", "letterbox"):
        if fit != step.fit and (fit != "shortest-edge" or step is not plan.pixels[-1][1]):
            yield f"resize with the fit {fit}", msgspec.structs.replace(step, fit=fit)
    if step.fit == "shortest-edge":
        ratios = (256 / 224, 232 / 224, 1.0, 1 / 0.9, 1 / 0.95, 248 / 224)
        sizes = [int(min(plan.size or (0, 0)) * ratio + 0.5) for ratio in ratios]
        sizes += [step.height - 1, step.height + 1]
        for size in dict.fromkeys(sizes):
            if size >= min(plan.size or (1, 1)) and size != min(step.height, step.width):
                changed = msgspec.structs.replace(step, height=size, width=size)
                yield f"resize of the shorter side to {size}", changed
    if step.fit == "letterbox":
        for level in (0, 114, 128, 255):
            if step.fill != (level,) * 3:
                changed = msgspec.structs.replace(step, fill=(level,) * 3)
                yield f"letterbox borders of the level {level}", changed


def _crops(
    step: CenterCrop, before: Sequence[PixelStep]
) -> Iterator[tuple[str, list[PixelStep | _Levels]]]:
    other = "half-even" if step.rounding == "floor" else "floor"
    rounded = msgspec.structs.replace(step, rounding=other)
    yield f"center crop with the rounding {other}", [*before, rounded]
    for words, place in (("upper left", 0.0), ("lower right", 1.0)):
        yield f"crop of the {words} corner", [*before, _cropped(step, place)]
    stretch = Resize(height=step.height, width=step.width, filter=_filter(before))
    yield "no center crop: resize of the whole picture", [stretch]


def _added_crops(steps: Sequence[PixelStep]) -> Iterator[tuple[str, list[PixelStep | _Levels]]]:
    last = steps[-1]
    if not isinstance(last, Resize) or last.fit == "shortest-edge":
        return
    crop = CenterCrop(height=last.height, width=last.width)
    for ratio in (1.0, 256 / 224, 232 / 224):
        size = int(min(last.height, last.width) * ratio + 0.5)
        shorter = Resize(height=size, width=size, fit="shortest-edge", filter=last.filter)
        words = f"resize of the shorter side to {size}, then a center crop"
        yield words, [*steps[:-1], shorter, crop]


def _filter(steps: Sequence[PixelStep]) -> str:
    return next((step.filter for step in steps if isinstance(step, Resize)), "bilinear")


def _cropped(step: CenterCrop, place: float) -> _Levels:
    def levels(image: PIL.Image.Image) -> np.ndarray:
        top = round(max(0, image.height - step.height) * place)
        left = round(max(0, image.width - step.width) * place)
        box = (left, top, left + step.width, top + step.height)
        return np.asarray(image.crop(box), np.float32)

    return levels


def _pillow(step: Resize, kernel: str) -> _Levels:
    """The resize by another of Pillow's filters, also those that no step has."""

    def levels(image: PIL.Image.Image) -> np.ndarray:
        from PIL import Image

        height, width = inner = step.inner_size((image.height, image.width))
        made = image.resize((width, height), Image.Resampling[kernel.upper()])
        return _bordered(step, inner, np.asarray(made, np.float32))

    return levels


def _bordered(step: Resize, inner: tuple[int, int], made: np.ndarray) -> np.ndarray:
    """A resampled picture with the borders of a letterbox."""
    if step.fit != "letterbox":
        return made
    canvas = np.broadcast_to(np.float32(step.fill), (step.height, step.width, 3)).copy()
    top, left = step.origin(inner)
    canvas[top : top + inner[0], left : left + inner[1]] = made
    return canvas


def _resampled(step: Resize, kernel: str, *, antialias: bool) -> _Levels:
    """The resize with another kernel, in floats that are not rounded where they stand last."""

    def levels(image: PIL.Image.Image) -> np.ndarray:
        inner = step.inner_size((image.height, image.width))
        array = np.asarray(image, np.float64)
        rows = resampling_matrix(array.shape[0], inner[0], kernel, antialias)
        columns = resampling_matrix(array.shape[1], inner[1], kernel, antialias)
        made = np.einsum("rh,hwc->rwc", rows, array, optimize=True)
        made = np.clip(np.einsum("cw,rwk->rck", columns, made, optimize=True), 0, 255)
        return _bordered(step, inner, made.astype(np.float32))

    return levels


def resampling_matrix(old: int, new: int, kernel: str, antialias: bool) -> np.ndarray:
    """Weights float64 [new, old] of a resampling along one axis; each row sums to 1.

    Args:
        old: Pixels before.
        new: Pixels after.
        kernel: "nearest", "floor" (the pixel at the rounded-down place), "box", "bilinear",
            "hamming", "bicubic", "lanczos", or "area" (the mean over the covered interval).
        antialias: Widen the kernel by the scale where pixels are lost.
    """
    scale = old / new
    places = np.arange(new)
    matrix = np.zeros((new, old))
    if kernel in ("nearest", "floor"):
        at = (places + 0.5) * scale if kernel == "nearest" else places * scale
        matrix[places, np.clip(np.floor(at).astype(int), 0, old - 1)] = 1
        return matrix
    edges = np.arange(old)
    if kernel == "area":
        low, high = (places * scale)[:, None], ((places + 1) * scale)[:, None]
        matrix = np.clip(np.minimum(high, edges + 1) - np.maximum(low, edges), 0, None)
        return matrix / matrix.sum(1, keepdims=True)
    support, weigh = _KERNELS[kernel if antialias else f"{kernel}-plain"]
    wide = max(scale, 1.0) if antialias else 1.0
    centre = (places + 0.5) * scale
    reach = math.ceil(support * wide) + 1
    taps = np.floor(centre).astype(int)[:, None] + np.arange(-reach, reach + 1)
    weights = weigh((taps + 0.5 - centre[:, None]) / wide)
    if antialias:  # Pillow leaves out what lies beyond the picture; others repeat its edge
        weights = np.where((taps >= 0) & (taps < old), weights, 0.0)
    np.add.at(matrix, (places[:, None], np.clip(taps, 0, old - 1)), weights)
    return matrix / matrix.sum(1, keepdims=True)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, None)


_KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, _triangle),
    "bilinear-plain": (1.0, _triangle),
    "hamming": (
        1.0,
        lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0),
    ),
    "bicubic": (2.0, lambda x: _cubic(x, -0.5)),
    "bicubic-plain": (2.0, lambda x: _cubic(x, -0.75)),
    "lanczos": (3.0, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}


def swapped_labels(labels: Mapping[tuple[str, str], int]) -> str:
    """Tell of two labels that look swapped; "" where none do.

    Args:
        labels: How often the server gave one label and the program another or the same.
    """
    flips = {pair: count for pair, count in labels.items() if pair[0] != pair[1]}
    for one, other in flips:
        mutual = flips.get((one, other), 0) + flips.get((other, one), 0)
        same = labels.get((one, one), 0) + labels.get((other, other), 0)
        if (other, one) in flips and mutual == sum(flips.values()) > 2 + same:
            text = f"all {mutual} flips are {one!r} for {other!r} or {other!r} for {one!r}"
            return f"{text}: two labels look swapped"
    return ""


def describe_difference(oracle: Reference, asked: Sequence[AskedPicture], data_agrees: bool) -> str:
    """Tell how far the server and the packaged processing differ on synthetic pictures, and why.

    Args:
        oracle: The server and the program.
        asked: Synthetic pictures that the server has answered.
        data_agrees: Both agree on the user's data.

    Returns:
        A sentence; "" where they differ by rounding only, or nothing can be compared.
    """
    comparable = oracle.takes_raw_inputs and oracle.processor.medium == "image"
    known = [each for each in asked if each.answer.record is not None or each.answer.own]
    if not comparable or not known or len(oracle.exported.processing.inputs) != 1:
        return ""
    apart = _distances(oracle, known, [each.feed for each in known])
    worst = max(apart)
    if not worst > SEEN:
        return ""
    unit = "of an output's scale" if known[0].answer.own else "in a score"
    if tasks.decides(oracle.exported.task) and tasks.needs_neighbours(oracle.exported.task):
        unit = "in a cosine"
    though = ", though they agree on your data" if data_agrees else ""
    step = search(oracle, known, apart)
    return (
        "on synthetic pictures your server and the packaged processing differ by up to"
        f" {min(worst, 1.0):.2g} {unit}{though}; the server's answers come back with: {step}"
    )
