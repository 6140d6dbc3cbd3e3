"""From an RGB picture to a model's tensor: normalize/1, dtype/1 and layout/1 in one pass.

These steps look at one 8-bit sample at a time, so whatever they do is a table of 256 values a
channel. `ToTensor` makes that table once, with the steps written out plainly, and refuses what
cannot be a tensor. At run time the common case, float32, is computed instead of looked up: the
same two rounded operations, faster than a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.processing import Cast, Layout, Normalize

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["ToTensor", "cast", "normalize_from"]

_BANDS = "RGB"
#: dtype/1 has no meaning for these: numpy lacks bfloat16, and a pixel is no word and no truth.
_NO_CAST = ("bfloat16", "bool", "string")


def normalize_from(rescale: float, mean: Sequence[float], std: Sequence[float]) -> Normalize:
    """Make the step that equals ``(pixel * rescale - mean) / std``, one mean and std a channel.

    Args:
        rescale: What a pixel is multiplied with first; 1/255 where it is first scaled to 0..1.
        mean: Mean of each channel, on the rescaled range.
        std: Standard deviation of each channel, on the rescaled range.

    Returns:
        ``scale = rescale / std`` and ``bias = -mean / std``, computed in float64 and rounded once
        to float32, so that JSON carries them exactly.

    Raises:
        ProcessingError: EDGE-PROCESS-004, the lengths differ, a std is 0 or a result is not finite.
    """
    if len(mean) != len(std):
        raise _bad_numbers(f"{len(mean)} means and {len(std)} stds", "one of each a channel")
    if not all(std):
        raise _bad_numbers(f"std {list(std)}", "no std of 0")
    scale = [_float32(rescale / s) for s in std]
    bias = [_float32((0.0 - m) / s) for m, s in zip(mean, std, strict=True)]
    return Normalize(scale=tuple(scale), bias=tuple(bias))


def cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert as dtype/1 says: floats to integers by rounding half to even, saturating.

    Floats to narrower floats round to the nearest and overflow to infinity, as IEEE 754 has it.
    """
    target = np.dtype(dtype)
    if target.kind == "f":
        with np.errstate(over="ignore"):
            return values.astype(target)
    low, high = np.iinfo(target).min, np.iinfo(target).max
    rounded = np.rint(values.astype(np.float64))
    # float(high) can be one more than high (int64): compare before converting, never after.
    inside = np.where((rounded > float(low)) & (rounded < float(high)), rounded, 0).astype(target)
    ends = np.where(rounded <= float(low), low, high).astype(target)
    return np.where((rounded <= float(low)) | (rounded >= float(high)), ends, inside)


class ToTensor:
    """The steps after the last pixel step, compiled.

    Attributes:
        name: The steps joined by "+", for timings: "normalize+layout"; "array" where none are.
        dtype: Of the tensor.
        planar: Whether it is [channel, row, column] rather than [row, column, channel].
    """

    __slots__ = ("_bias", "_fill", "_scale", "_table", "dtype", "name", "planar")

    def __init__(self, normalize: Normalize | None, layout: Layout | None, to: Cast | None) -> None:
        given = {"normalize": normalize, "layout": layout, "dtype": to}
        self.name = "+".join(name for name, step in given.items() if step) or "array"
        self.planar = layout is not None and layout.order == "CHW"
        self._scale, self._bias = _constants(normalize)
        self._table = _table(normalize, self._scale, self._bias, to)
        self.dtype = self._table.dtype
        self._fill = self._look_up
        if normalize is None and np.can_cast(np.uint8, self.dtype):
            self._fill = self._copy
        elif normalize is not None and self.dtype == np.float32:
            self._fill = self._compute

    def __call__(self, image: PIL.Image.Image) -> np.ndarray:
        """Make the tensor of an RGB picture: [3, H, W] or [H, W, 3], fresh and contiguous."""
        height, width = image.height, image.width
        tensor = np.empty((3, height, width) if self.planar else (height, width, 3), self.dtype)
        channels = tensor if self.planar else tensor.transpose(2, 0, 1)
        for index, band in enumerate(_BANDS):
            plane = np.frombuffer(image.tobytes("raw", band), np.uint8).reshape(height, width)
            self._fill(index, plane, channels[index])
        return tensor

    def _copy(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        out[...] = plane

    def _compute(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        # Two operations, each rounded to float32: never one fused multiply-add.
        np.multiply(plane, self._scale[index], out=out)
        np.add(out, self._bias[index], out=out)

    def _look_up(self, index: int, plane: np.ndarray, out: np.ndarray) -> None:
        np.take(self._table[index], plane, out=out, mode="clip")


def _constants(normalize: Normalize | None) -> tuple[np.ndarray, np.ndarray]:
    if normalize is None:
        return np.ones(3, np.float32), np.zeros(3, np.float32)
    if len(normalize.scale) != len(_BANDS):
        raise _bad_numbers(f"{len(normalize.scale)} scales", "three, for R, G and B")
    with np.errstate(over="ignore"):
        return np.array(normalize.scale, np.float32), np.array(normalize.bias, np.float32)


def _table(
    normalize: Normalize | None, scale: np.ndarray, bias: np.ndarray, to: Cast | None
) -> np.ndarray:
    """What each of the 256 levels becomes: [3, 256] of the tensor's dtype."""
    levels = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
    if normalize is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            levels = levels.astype(np.float32) * scale[:, None] + bias[:, None]
        if not np.isfinite(levels).all():
            raise _bad_numbers("values beyond float32", "finite values for levels 0 to 255")
    if to is None:
        return levels
    if to.dtype in _NO_CAST:
        raise ProcessingError(
            "EDGE-PROCESS-012",
            "step 'dtype/1'",
            wanted="an integer or float dtype that numpy has",
            got=to.dtype,
            hint="let the model take float32 and convert inside the graph",
        )
    return cast(levels, to.dtype)


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if not np.isfinite(rounded):
        raise _bad_numbers(f"{value!r} as a scale or bias", "a number that float32 can hold")
    return rounded


def _bad_numbers(got: str, wanted: str) -> ProcessingError:
    return ProcessingError(
        "EDGE-PROCESS-004",
        "step 'normalize/1'",
        wanted=wanted,
        got=got,
        hint="take mean and std from the model's own training code, one of each a channel",
    )
