"""How long each step of processing took, told to whoever asks."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "OnStep"]

#: Called after each step with its name and the seconds it took.
OnStep = Callable[[str, float], None]


class Clock:
    """Tells a callback how long each step took, from one call to the next."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        """End the step called ``name``."""
        now = time.perf_counter()
        self._on_step(name, now - self._since)
        self._since = time.perf_counter()  # the callback's own time is nobody's step
