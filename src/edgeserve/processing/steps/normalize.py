"""normalize/1: each channel rescaled and shifted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.steps import LevelStep


class Normalize(LevelStep, frozen=True, tag_field="step", tag="normalize/1"):
    """Rescale and normalise in one: ``float32(pixel) * scale + bias`` per channel, in float32.

    ``(x * rescale - mean) / std`` is ``scale = rescale / std``, ``bias = -mean / std``, both
    computed in float64 and rounded once to float32 (`normalize_from`).
    """

    rank: ClassVar = 2

    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.bias) or not self.scale:
            raise ValueError("normalize needs as many scales as biases, at least one")
        if not all(math.isfinite(x) for x in (*self.scale, *self.bias)):
            raise ValueError("normalize needs finite scales and biases")

    def apply(self, levels: np.ndarray) -> np.ndarray:
        """See `LevelStep.apply`.

        Raises:
            ProcessingError: EDGE-PROCESS-004, not three of each, or values beyond float32.
        """
        scale, bias = self.affine()
        with np.errstate(over="ignore", invalid="ignore"):
            found = levels.astype(np.float32) * scale[:, None] + bias[:, None]
        if not np.isfinite(found).all():
            raise _bad_numbers("values beyond float32", "finite values for levels 0 to 255")
        return np.asarray(found)

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """See `LevelStep.affine`."""
        if len(self.scale) != 3:
            raise _bad_numbers(f"{len(self.scale)} scales", "three, for R, G and B")
        with np.errstate(over="ignore"):
            return np.array(self.scale, np.float32), np.array(self.bias, np.float32)


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


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if not np.isfinite(rounded):
        raise _bad_numbers(f"{value!r} as a scale or bias", "a number that float32 can hold")
    return rounded


def _bad_numbers(got: str, wanted: str) -> ProcessingError:
    where = "step 'normalize/1'"
    hint = "take mean and std from the model's own training code, one of each a channel"
    return ProcessingError("EDGE-PROCESS-004", where, wanted=wanted, got=got, hint=hint)
