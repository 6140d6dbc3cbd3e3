"""Pixels as an image input's tensor, as Core ML makes it: planes of 0..255, in its colour order."""

from __future__ import annotations

import numpy as np

from edgeserve.errors import MilError

__all__ = ["tensor_of_image"]


def tensor_of_image(pixels: np.ndarray, space: str) -> np.ndarray:
    """Turn raw pixels into what a program takes for an image.

    Scale and bias of the image type are ops of the program itself, and are not applied here.

    Args:
        pixels: uint8, height x width x 3 in RGB order, or height x width for a grey image.
        space: The input's colour space: "RGB", "BGR", "GRAYSCALE" or "GRAYSCALE_FLOAT16".

    Returns:
        float32, 1 x channels x height x width, values 0 to 255.

    Raises:
        MilError: EDGE-MIL-007, the array has not the axes of such an image.
    """
    grey = space.startswith("GRAYSCALE")
    wanted = "height x width" if grey else "height x width x 3"
    if pixels.ndim != (2 if grey else 3) or (not grey and pixels.shape[2] != 3):
        raise MilError(
            "EDGE-MIL-007",
            "image",
            wanted=wanted,
            got=f"shape {pixels.shape}",
            hint="give the decoded pixels, or the tensor that the package takes",
        )
    planes = pixels[None] if grey else pixels.transpose(2, 0, 1)
    planes = planes[::-1] if space == "BGR" else planes
    return np.ascontiguousarray(planes[None], dtype=np.float32)
