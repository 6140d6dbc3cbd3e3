"""``predict(x, rate=)``: samples alone do not say how fast they are to be played."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeserve.errors import InputError
from edgeserve.processing import Sound

__all__ = ["rated"]


def rated(x: Any, rate: int | None, medium: str) -> Any:
    """What ``x`` is once its arrays know their rate.

    Args:
        x: What a caller gave to `predict`: an array of samples, or a list of them.
        rate: Samples a second; None: nothing was said.
        medium: What the model takes.

    Raises:
        InputError: EDGE-INPUT-035, there is nothing here that needs one.
    """
    if rate is None:
        return x
    if medium == "audio" and isinstance(x, list | tuple):
        return [rated(each, rate, medium) for each in x]
    if medium == "audio" and isinstance(x, np.ndarray):
        return Sound(x, rate)
    got = f"a {type(x).__name__}, for a model of {medium}"
    raise InputError(
        "EDGE-INPUT-035",
        "rate=",
        wanted="an array of samples, or a list of arrays",
        got=got,
        hint="leave rate= out: a WAV says its own, and nothing else has one",
    )
