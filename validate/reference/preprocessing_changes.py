"""The ways in which a server's preprocessing of pictures is known to differ, one step each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeserve.processing.image.pipeline import ImagePlan
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.resize import Resize
from edgeserve.types.steps import PixelStep
from edgeserve.validate.reference.resampling import resampling_matrix

if TYPE_CHECKING:
    import PIL.Image

#: A picture to its levels, float32 [row, column, channel] from 0 to 255.
Levels = Callable[["PIL.Image.Image"], np.ndarray]


@dataclass(frozen=True)
class ProcessingChange:
    """One way in which a server's preprocessing may differ.

    Attributes:
        words: What the server does instead: "resize without antialiasing".
        levels: Levels of a picture; None: those of the packaged steps.
        affine: Scale and bias of each channel; None: the packaged ones.
        reverse: Channels reach the model in the opposite order.
        decode: Raw bytes to a picture; None: the packaged step.
    """

    words: str
    levels: Levels | None = None
    affine: tuple[np.ndarray, np.ndarray] | None = None
    reverse: bool = False
    decode: Callable[[bytes], PIL.Image.Image] | None = None


def packaged_levels(plan: ImagePlan) -> Levels:
    """Levels after the packaged steps on pixels."""
    return _with_steps([step for _, step in plan.pixels])


def _with_steps(steps: Sequence[PixelStep | Levels]) -> Levels:
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


def changes(plan: ImagePlan) -> Iterator[ProcessingChange]:
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
    packaged = packaged_levels(plan)
    scale, bias = plan.tail.affine
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


#: A number for each channel, or one for all.
_Channels = float | tuple[float, float, float]
_MEAN_STD: dict[str, tuple[_Channels, _Channels]] = {
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
    scale, bias = plan.tail.affine
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


def _resizes(step: Resize, plan: ImagePlan) -> Iterator[tuple[str, PixelStep | Levels]]:
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
) -> Iterator[tuple[str, list[PixelStep | Levels]]]:
    other = "half-even" if step.rounding == "floor" else "floor"
    rounded = msgspec.structs.replace(step, rounding=other)
    yield f"center crop with the rounding {other}", [*before, rounded]
    for words, place in (("upper left", 0.0), ("lower right", 1.0)):
        yield f"crop of the {words} corner", [*before, _cropped(step, place)]
    resize = next((each for each in before if isinstance(each, Resize)), Resize(1, 1))
    stretch = Resize(height=step.height, width=step.width, filter=resize.filter)
    yield "no center crop: resize of the whole picture", [stretch]


def _added_crops(steps: Sequence[PixelStep]) -> Iterator[tuple[str, list[PixelStep | Levels]]]:
    last = steps[-1]
    if not isinstance(last, Resize) or last.fit == "shortest-edge":
        return
    crop = CenterCrop(height=last.height, width=last.width)
    for ratio in (1.0, 256 / 224, 232 / 224):
        size = int(min(last.height, last.width) * ratio + 0.5)
        shorter = Resize(height=size, width=size, fit="shortest-edge", filter=last.filter)
        words = f"resize of the shorter side to {size}, then a center crop"
        yield words, [*steps[:-1], shorter, crop]


def _cropped(step: CenterCrop, place: float) -> Levels:
    def levels(image: PIL.Image.Image) -> np.ndarray:
        top = round(max(0, image.height - step.height) * place)
        left = round(max(0, image.width - step.width) * place)
        box = (left, top, left + step.width, top + step.height)
        return np.asarray(image.crop(box), np.float32)

    return levels


def _pillow(step: Resize, kernel: str) -> Levels:
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
    canvas = np.empty((step.height, step.width, 3), np.float32)
    canvas[:] = step.fill
    top, left = step.origin(inner)
    canvas[top : top + inner[0], left : left + inner[1]] = made
    return canvas


def _resampled(step: Resize, kernel: str, *, antialias: bool) -> Levels:
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
