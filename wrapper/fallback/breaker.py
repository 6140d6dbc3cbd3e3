"""`Breaker`: leaves an endpoint alone that does not answer, and finds out when it does again."""

from __future__ import annotations

import random
from collections import deque

__all__ = ["Breaker"]

#: Failures in a row that open it, or the share of failures among the last calls.
_IN_A_ROW = 5
_LAST = 20
_SHARE = 0.5
_FEWEST = 10
#: Seconds until the first try while it is open; each that fails doubles it up to the longest.
_FIRST_S, _LONGEST_S = 0.5, 2.0
#: What a ``Retry-After`` can ask for at most, seconds: a slip there must not end the contract.
_LONGEST_REST_S = 60.0


class Breaker:
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
