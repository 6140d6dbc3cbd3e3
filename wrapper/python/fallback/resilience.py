"""What limits calls to endpoints.

A circuit breaker for each, a budget for second requests, backoff.

The breaker leaves an endpoint alone that does not answer, and finds out when it does again. The
budget says what retries and hedges may cost, the latencies when a hedge is worth it.
"""

from __future__ import annotations

import random
from collections import deque

__all__ = ["CircuitBreaker", "LatencyWindow", "RetryBudget", "backoff"]


#: Failures in a row that open it, or the share of failures among the last calls.
_IN_A_ROW = 5
_LAST = 20
_SHARE = 0.5
_FEWEST = 10
#: Seconds until the first try while it is open; each that fails doubles it up to the longest.
_FIRST_S, _LONGEST_S = 0.5, 2.0
#: What a ``Retry-After`` can ask for at most, seconds: a slip there must not end the contract.
_LONGEST_REST_S = 60.0


class CircuitBreaker:
    """One endpoint's. Not thread-safe: whoever uses it holds a lock.

    While it is closed every call may pass. Open, none may, but for one try now and then; one good
    try closes it.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._recent: deque[bool] = deque(maxlen=_LAST)
        self._in_a_row = 0
        self._open = False
        self._try_at, self._wait = 0.0, _FIRST_S
        self._trying = False
        self._rest_until = 0.0

    def keeps_away(self, now: float) -> bool:
        """Whether the endpoint is left alone: it fails, or asked for a rest."""
        return self._open or now < self._rest_until

    def allows(self, now: float) -> bool:
        """Whether a call may be made at this time; ``began`` must follow if it is."""
        if now < self._rest_until:
            return False
        return not self._open or (now >= self._try_at and not self._trying)

    def began(self) -> None:
        """A call is being made."""
        if self._open:
            self._trying = True

    def good(self) -> None:
        """A call was answered."""
        self._note(True)
        self._in_a_row = 0
        if self._open:
            self._open, self._wait = False, _FIRST_S
            self._recent.clear()

    def bad(self, now: float, rest: float = 0.0) -> None:
        """A call failed.

        Args:
            now: The time.
            rest: Seconds for which the endpoint itself asked not to be called.
        """
        self._note(False)
        self._in_a_row += 1
        self._rest_until = max(self._rest_until, now + min(rest, _LONGEST_REST_S))
        failed = self._recent.count(False)
        many = len(self._recent) >= _FEWEST and failed >= _SHARE * len(self._recent)
        if self._open:
            self._wait = min(2 * self._wait, _LONGEST_S)
            self._later(now)
        elif self._in_a_row >= _IN_A_ROW or many:
            self._open = True
            self._later(now)

    def undecided(self) -> None:
        """A call was given up before it said anything about the endpoint."""
        self._trying = False

    def _note(self, good: bool) -> None:
        self._trying = False
        self._recent.append(good)

    def _later(self, now: float) -> None:
        # Not all devices at the same moment.
        self._try_at = now + self._wait * self._rng.uniform(0.75, 1.25)


#: Second requests that may be saved up: a burst of failures must not find a year's savings.
_MOST_SAVED = 10.0
#: What there is from the start for turning to another endpoint: as many calls as fail in a row
#: until a dead endpoint is left alone.
_CREDIT = 5
#: Hedges may take this share of the budget, the rest is for retries.
_HEDGES = 0.55
_BASE_S = 0.025


class RetryBudget:
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


class LatencyWindow:
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
