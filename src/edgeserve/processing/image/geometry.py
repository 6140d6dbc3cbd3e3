"""Where places in a model's input lie in the upright picture that it was made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.types.steps import PixelStep, Size


class ImageTransform:
    """What steps do to a picture of one size: ``x -> x * scale + shift``.

    Places are continuous: pixel i covers [i, i + 1). Exact but for the rounding of float64.

    Attributes:
        size: Height and width of the picture.
        end: Height and width of what the steps make of it.
    """

    def __init__(self, steps: Sequence[PixelStep], size: Size) -> None:
        self.size = self.end = size
        self._scale, self._shift = np.ones(2), np.zeros(2)  # height, width
        for step in steps:
            scale, shift, self.end = step.placement(self.end)
            self._scale = self._scale * scale
            self._shift = self._shift * scale + shift

    def back(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes xyxy [n, 4] of the model's input as boxes of the picture, clipped to it: float64.

        What lies in a letterbox's borders ends at the edge of the picture.
        """
        corners = np.asarray(boxes, np.float64).reshape(-1, 2)
        height, width = self.size
        return np.asarray(np.clip(self.points_back(corners), 0, (width, height)).reshape(-1, 4))

    def points_back(self, points: np.ndarray) -> np.ndarray:
        """Points xy [n, 2] of the model's input in pixels of the picture, wherever they lie."""
        return np.asarray((np.asarray(points, np.float64) - self._shift[::-1]) / self._scale[::-1])

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
