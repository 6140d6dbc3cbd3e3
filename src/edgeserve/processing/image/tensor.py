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

from edgeserve.processing.checks import step_name
from edgeserve.types.steps import LevelStep

if TYPE_CHECKING:
    import PIL.Image


_BANDS = "RGB"


class ToTensor:
    """The steps after the last pixel step, compiled.

    Attributes:
        name: The steps joined by "+", for timings: "normalize+layout"; "array" where none are.
        dtype: Of the tensor.
        planar: Whether it is [channel, row, column] rather than [row, column, channel].
    """

    __slots__ = ("_bias", "_fill", "_scale", "_table", "dtype", "name", "planar")

    def __init__(self, steps: Sequence[LevelStep]) -> None:
        self.name = "+".join(step_name(step) for step in steps) or "array"
        self.planar = next((s.planar for s in steps if s.planar is not None), False)
        table = levels = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
        for step in steps:
            table = step.apply(table)
        self._table, self.dtype = table, table.dtype
        affine = [pair for step in steps if (pair := step.affine()) is not None]
        self._scale: np.ndarray = affine[0][0] if affine else np.ones(3)
        self._bias: np.ndarray = affine[0][1] if affine else np.zeros(3)
        # Whether the whole table is one scale and bias a channel, in float32.
        levels32 = np.arange(256, dtype=np.float32)
        made = levels32 * self._scale[:, None] + self._bias[:, None]
        is_affine = self.dtype == np.float32 and np.array_equal(table, made)
        self._fill = self._look_up
        if not affine and np.array_equal(table, levels):
            self._fill = self._copy
        elif len(affine) == 1 and is_affine:
            self._fill = self._compute

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Scale and bias of each channel, float32 [3]; 1 and 0 where no step has any."""
        return self._scale, self._bias

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
