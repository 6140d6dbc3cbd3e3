"""From places in a model's input back to places in the upright picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.processing.geometry import Size, crop_origin, letterbox_origin, resized
from edgeserve.types.processing import CenterCrop, Resize

__all__ = ["Way"]


class Way:
    """What resizing and cropping does to a picture of one size: ``x -> x * scale + shift``.

    Places are continuous: pixel i covers [i, i + 1). Exact but for the rounding of float64.

    Attributes:
        size: Height and width of the picture.
        end: Height and width of what the steps make of it.
    """

    def __init__(self, steps: Sequence[Resize | CenterCrop], size: Size) -> None:
        self.size = self.end = size
        self._scale, self._shift = np.ones(2), np.zeros(2)  # height, width
        for step in steps:
            if isinstance(step, CenterCrop):
                self._shift = self._shift - crop_origin(step, self.end)
                self.end = (step.height, step.width)
            else:
                self._resize(step)

    def _resize(self, step: Resize) -> None:
        inner = resized(step, self.end)
        ratio = np.array(inner) / self.end
        boxed = step.fit == "letterbox"
        self._scale = self._scale * ratio
        self._shift = self._shift * ratio + (letterbox_origin(step, inner) if boxed else (0, 0))
        self.end = (step.height, step.width) if boxed else inner

    def back(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes xyxy [n, 4] of the model's input as boxes of the picture, clipped to it: float64.

        What lies in a letterbox's borders ends at the edge of the picture.
        """
        scale, shift = np.tile(self._scale[::-1], 2), np.tile(self._shift[::-1], 2)
        height, width = self.size
        found = (np.asarray(boxes, np.float64) - shift) / scale
        return np.asarray(np.clip(found, 0, (width, height, width, height)))

    def seen(self, shape: Size) -> tuple[np.ndarray, np.ndarray]:
        """Where the picture's pixels lie in a map that the model made of it.

        Args:
            shape: Height and width of the map, which spans all that the steps made.

        Returns:
            For the centre of each row, and of each column, the map's row or column that it lies in:
            int64 [height] and [width]; -1 where the model did not see it.
        """
        found = []
        for axis in (0, 1):
            places = (np.arange(self.size[axis]) + 0.5) * self._scale[axis] + self._shift[axis]
            index = np.floor(places * (shape[axis] / self.end[axis])).astype(np.int64)
            found.append(np.where((index >= 0) & (index < shape[axis]), index, -1))
        return found[0], found[1]
