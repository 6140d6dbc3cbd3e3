"""A network of one image: its image processor's settings as steps, verified pixel by pixel.

The steps are written from the processor's settings, then both make tensors of probe images of
odd sizes. So a processor with code of its own is either carried over exactly or refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgeserve.convert.huggingface.folder import (
    ModelFolder,
    load_preprocessor,
    steps_output,
    unsupported_setting,
)
from edgeserve.convert.huggingface.model import NetworkPlan, load_with_steps
from edgeserve.convert.torch_source import SourceModule
from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.resize import Filter, Resize
from edgeserve.types.steps import InputStep
from edgeserve.user_lines import one_line

#: Pillow's numbers for its kernels.
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}

#: Switches that no step has a word for.
_UNSUPPORTED_SWITCHES = tuple(
    (
        "do_pad do_flip_channel_order do_grayscale do_color_quantize do_crop_margin do_thumbnail "
        "do_align_long_axis do_image_splitting do_pan_and_scan apply_ocr size_divisor "
        "ensure_multiple_of do_rescale_and_crop"
    ).split()
)


def image_steps(processor: Any) -> tuple[InputStep, ...]:
    """What the settings of a processor of transformers say, as steps.

    Raises:
        ConvertError: EDGE-CONVERT-069, naming the setting.
    """
    for name in _UNSUPPORTED_SWITCHES:
        if getattr(processor, name, None):
            raise _unsupported(name, "off", repr(getattr(processor, name)))
    sized = [*_resize(processor), *_crop(processor)]
    last = sized[-1] if sized else None
    if last is None or (isinstance(last, Resize) and last.fit == "shortest-edge"):
        setting = "do_resize" if last is None else "size.shortest_edge"
        wanted = "one size for every picture (height and width, or a do_center_crop)"
        raise _unsupported(setting, wanted, "a size that depends on the picture")
    return (Decode(), *sized, _normalize(processor), Layout(order="CHW"))


def _resize(processor: Any) -> Iterable[Resize | CenterCrop]:
    if not processor.do_resize:
        return ()
    kernel = _kernel(processor.resample)
    given = {key: int(size) for key, size in dict(processor.size or {}).items() if size}
    edge = given.get("shortest_edge")
    pct = getattr(processor, "crop_pct", None)
    levit = type(processor).__name__.startswith("Levit")
    if set(given) == {"height", "width"}:
        if pct and not _has_own_crop(processor):
            raise _unsupported("crop_pct", "size.shortest_edge beside it", str(given))
        return (Resize(height=given["height"], width=given["width"], filter=kernel),)
    if edge is None or len(given) > 1:
        raise _unsupported("size", "height and width, or shortest_edge", str(given))
    if _has_own_crop(processor) and edge >= 384:
        return (Resize(height=edge, width=edge, filter=kernel),)
    target = int(edge / pct) if pct else int((256 / 224) * edge) if levit else edge
    resize = Resize(height=target, width=target, fit="shortest-edge", filter=kernel)
    own = [CenterCrop(height=edge, width=edge)] if _has_own_crop(processor) else []
    return (resize, *own)


def _has_own_crop(processor: Any) -> bool:
    """Whether resizing itself ends in a crop to the size, or in a stretch from 384 on."""
    return type(processor).__name__.startswith("ConvNext")


def _kernel(resample: Any) -> Filter:
    number = 2 if resample is None else int(resample)
    if number not in _FILTERS:
        raise _unsupported("resample", f"one of {_FILTERS}", str(resample))
    return _FILTERS[number]


def _crop(processor: Any) -> Iterable[CenterCrop]:
    if not processor.do_center_crop:
        return ()
    given = {key: int(size) for key, size in dict(processor.crop_size or {}).items() if size}
    if set(given) != {"height", "width"}:
        raise _unsupported("crop_size", "height and width", str(given))
    return (CenterCrop(height=given["height"], width=given["width"]),)


def _normalize(processor: Any) -> Normalize:
    """All of them are ``level * scale + bias``; both in float64, rounded once to float32."""
    scale, bias = np.ones(3), np.zeros(3)
    if processor.do_rescale:
        scale, bias = scale * processor.rescale_factor, bias * processor.rescale_factor
        if getattr(processor, "rescale_offset", False):
            bias = bias - 1
    if processor.do_normalize:
        mean, std = _three(processor, "image_mean"), _three(processor, "image_std")
        scale, bias = scale / std, (bias - mean) / std
    if getattr(processor, "include_top", False):  # EfficientNet divides once more
        std = _three(processor, "image_std")
        scale, bias = scale / std, bias / std
    return Normalize(scale=_float32(scale), bias=_float32(bias))


def _three(processor: Any, name: str) -> np.ndarray:
    value = getattr(processor, name)
    numbers = [value] * 3 if isinstance(value, int | float) else list(value or ())
    if len(numbers) != 3 or (name == "image_std" and not all(numbers)):
        raise _unsupported(name, "three numbers, for R, G and B", repr(value))
    return np.asarray(numbers, np.float64)


def _float32(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values.astype(np.float32))


#: The error for what cannot be carried over: ``(setting, wanted, got)``.
_unsupported = partial(unsupported_setting, "image processor")


_INPUT = "pixel_values"
_BATCH = 16

#: Heights and widths of the probes: odd and even, wide, small, square. Each shrinks its columns as
#: much as its rows or more, so that no version of Pillow takes another order of passes.
_PROBES = ((97, 131), (333, 501), (64, 202), (255, 255))


def load_image_model(folder: ModelFolder, planned: NetworkPlan) -> SourceModule:
    """Load a network of one picture with its image processor.

    Raises:
        ConvertError: EDGE-CONVERT-061 to -069.
    """
    steps = verified_steps(load_image_processor(folder.network))
    example = _steps_output(steps, _probe_image(*_PROBES[0]))
    axes = {0: ("batch", 1, _BATCH)}
    return load_with_steps(folder, planned, steps, lambda config: axes, example)


def load_image_processor(folder: Path) -> Any:
    """The folder's image processor, in the variant that works with Pillow and numpy.

    Raises:
        ConvertError: EDGE-CONVERT-069.
    """
    import transformers

    return load_preprocessor(
        transformers.AutoImageProcessor, folder, "image processor", backend="pil"
    )


def verified_steps(processor: Any) -> tuple[InputStep, ...]:
    """The steps of an image processor, compared with it on the probes.

    Raises:
        ConvertError: EDGE-CONVERT-069, naming the setting that no step expresses, or the processor
            whose own code does something else.
    """
    steps = image_steps(processor)
    for height, width in _PROBES:
        picture = _probe_image(height, width)
        difference = _difference(
            _steps_output(steps, picture), _processor_output(processor, picture), steps
        )
        if difference:
            wanted = f"what its settings say of a picture {height} x {width}"
            got = f"{difference}: it has steps of its own"
            raise _unsupported(type(processor).__name__, wanted, got)
    return steps


def _processor_output(processor: Any, picture: np.ndarray) -> np.ndarray:
    """What the processor makes of a picture."""
    try:
        made: np.ndarray = np.asarray(processor(picture, return_tensors="np")[_INPUT][0])
        return made
    except Exception as error:  # transformers raises many kinds here
        name = type(processor).__name__
        raise _unsupported(name, f"{_INPUT} of a picture", one_line(error)) from error


def _probe_image(height: int, width: int) -> np.ndarray:
    """Noise over a slope: edges everywhere, all levels, and no two places alike."""
    rng = np.random.default_rng(height * width)
    slope = np.linspace(0, 200, height * width * 3).reshape(height, width, 3)
    return np.asarray(np.clip(slope + rng.integers(-60, 61, slope.shape), 0, 255), np.uint8)


def _steps_output(steps: tuple[InputStep, ...], picture: np.ndarray) -> np.ndarray:
    """What the steps make of a picture."""
    return steps_output(steps, _INPUT, (3, "height", "width"), picture)


def _difference(ours: np.ndarray, theirs: np.ndarray, steps: tuple[InputStep, ...]) -> str:
    """How far two tensors are apart, in levels of a pixel; empty where only rounding differs."""
    if ours.shape != theirs.shape:
        return f"shape {list(theirs.shape)} instead of {list(ours.shape)}"
    scale = next((step.scale for step in steps if isinstance(step, Normalize)), (1.0, 1.0, 1.0))
    levels = np.abs(theirs.astype(np.float64) - ours) / np.abs(scale)[:, None, None]
    worst = float(levels.max())
    return f"up to {worst:.2g} levels of a pixel apart" if not worst < 0.01 else ""
