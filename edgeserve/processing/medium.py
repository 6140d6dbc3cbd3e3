"""Which medium a model's inputs are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from edgeserve.errors import ProcessingError
from edgeserve.types.processing import InputProcessing, LogMel, Step, Tokenize, Waveform

__all__ = ["Medium", "medium_of"]

Medium = Literal["image", "audio", "text", "tensors"]


def medium_of(inputs: Sequence[InputProcessing]) -> Medium:
    """The medium; "tensors" where nothing is made.

    Raises:
        ProcessingError: EDGE-PROCESS-024, some inputs are made from one and others from another.
    """
    found = {each.name: _of(each.steps) for each in inputs}
    if len(set(found.values())) > 1:
        raise ProcessingError(
            "EDGE-PROCESS-024",
            "processing",
            wanted="all inputs made from one medium",
            got=", ".join(f"{medium} for {name!r}" for name, medium in found.items()),
            hint="make each input of it, or leave the processing's inputs empty: bring tensors",
        )
    return next(iter(found.values()), "tensors")


def _of(steps: Sequence[Step]) -> Medium:
    if any(isinstance(step, Tokenize) for step in steps):
        return "text"
    return "audio" if any(isinstance(step, Waveform | LogMel) for step in steps) else "image"
