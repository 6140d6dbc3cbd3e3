"""From an image processor's settings to steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from edgeserve.convert.huggingface.preprocessor import not_carried
from edgeserve.errors import ConvertError
from edgeserve.types.processing import CenterCrop, Decode, Filter, Layout, Normalize, Resize, Step

__all__ = ["input_steps", "refused"]

#: Pillow's numbers for its kernels.
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}

#: Switches that no step has a word for.
_UNKNOWN = (
    "do_pad",
    "do_flip_channel_order",
    "do_grayscale",
    "do_color_quantize",
    "do_crop_margin",
    "do_thumbnail",
    "do_align_long_axis",
    "do_image_splitting",
    "do_pan_and_scan",
    "apply_ocr",
    "size_divisor",
    "ensure_multiple_of",
    "do_rescale_and_crop",
)


def input_steps(processor: Any) -> tuple[Step, ...]:
    """What the settings of a processor of transformers say, as steps.

    Raises:
        ConvertError: EDGE-CONVERT-069, naming the setting.
    """
    for name in _UNKNOWN:
        if getattr(processor, name, None):
            raise refused(name, "off", repr(getattr(processor, name)))
    sized = [*_resize(processor), *_crop(processor)]
    last = sized[-1] if sized else None
    if last is None or (isinstance(last, Resize) and last.fit == "shortest-edge"):
        raise refused(
            "do_resize" if last is None else "size.shortest_edge",
            "one size for every picture (height and width, or a do_center_crop)",
            "a size that depends on the picture",
        )
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
            raise refused("crop_pct", "size.shortest_edge beside it", str(given))
        return (Resize(height=given["height"], width=given["width"], filter=kernel),)
    if edge is None or len(given) > 1:
        raise refused("size", "height and width, or shortest_edge", str(given))
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
        raise refused("resample", f"one of {_FILTERS}", str(resample))
    return _FILTERS[number]


def _crop(processor: Any) -> Iterable[CenterCrop]:
    if not processor.do_center_crop:
        return ()
    given = {key: int(size) for key, size in dict(processor.crop_size or {}).items() if size}
    if set(given) != {"height", "width"}:
        raise refused("crop_size", "height and width", str(given))
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
        raise refused(name, "three numbers, for R, G and B", repr(value))
    return np.asarray(numbers, np.float64)


def _float32(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values.astype(np.float32))


def refused(setting: str, wanted: str, got: str) -> ConvertError:
    """The error for what cannot be carried over."""
    return not_carried("image processor", setting, wanted, got)
