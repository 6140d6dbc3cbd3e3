"""What second requests may cost, and how long to wait before one."""

from __future__ import annotations

import random
from collections import deque

__all__ = ["Budget", "Latency", "backoff"]

#: Second requests that may be saved up: a burst of failures must not find a year's savings.
_MOST_SAVED = 10.0
#: What there is from the start for turning to another endpoint: as many calls as fail in a row
#: until a dead endpoint is left alone.
_CREDIT = 5
#: Hedges may take this share of the budget, the rest is for retries.
_HEDGES = 0.55
_BASE_S = 0.025


class Budget:
    """Counts calls, and lets a share of them cost a second request. Not thread-safe.

    Args:
        share: Second requests a call; 0: none at all, also no credit at the start.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = self._hedges = 0.0
        self._credit = _CREDIT if share > 0 else 0

    def call(self) -> None:
        """A call is made."""
        self._saved = min(_MOST_SAVED, self._saved + self._share)
        self._hedges = min(_MOST_SAVED, self._hedges + self._share * _HEDGES)

    def retry(self) -> bool:
        """Take a second request out, if there is one."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def turn(self) -> bool:
        """Take one out to turn to another endpoint; the first few need nothing saved.

        An app that has just started has saved nothing, and its first endpoint may be dead.
        """
        if self.retry():
            return True
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def hedge(self) -> bool:
        """Take a second request out for a hedge, if there is one."""
        if self._hedges < 1 or not self.retry():
            return False
        self._hedges -= 1
        return True


class Latency:
    """How long answers take: the last few hundred. Not thread-safe."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=256)
        self._slow: float | None = None

    def add(self, seconds: float) -> None:
        """An answer took so long, or was given up after so long."""
        self._seconds.append(seconds)
        if len(self._seconds) % 16 == 0:
            self._slow = None

    def hedge_after(self) -> float | None:
        """After this time few answers are still to come; None: too few are known.

        Half as long again as nine of ten take. The 95th percentile itself cannot be told from data
        in which one in twenty is slow: it is there fast in one window and slow in the next.
        """
        if len(self._seconds) < 20:
            return None
        if self._slow is None:
            ordered = sorted(self._seconds)
            self._slow = 1.5 * ordered[int(0.9 * len(ordered))]
        return self._slow


def backoff(rng: random.Random, tries: int) -> float:
    """Seconds before the next try, spread out so that many devices do not try at once."""
    return rng.uniform(0.2, 1.0) * _BASE_S * float(2**tries)
