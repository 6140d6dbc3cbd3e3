"""Limits on calls to endpoints: circuit breaker, retry budget, backoff.

A circuit breaker stops calls to an endpoint that fails, and finds out when it works again. The
retry budget bounds the cost of retries and hedges.
"""

from __future__ import annotations

import random
from collections import deque

#: Consecutive failures that open the breaker, or the share of failures among the last calls.
_CONSECUTIVE = 5
_WINDOW = 20
_SHARE = 0.5
_MIN_CALLS = 10
#: Seconds until the first trial call while it is open; each that fails doubles it, up to the
#: longest.
_FIRST_S, _LONGEST_S = 0.5, 2.0
#: Longest ``Retry-After`` that is obeyed, seconds: a slip there must not end the contract.
_MAX_REST_S = 60.0


class CircuitBreaker:
    """Of one endpoint. Not thread-safe: whoever uses it holds a lock.

    Closed, it lets every call pass. Open, it lets none pass but for a trial call now and then; one
    that succeeds closes it.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._recent: deque[bool] = deque(maxlen=_WINDOW)
        self._consecutive = 0
        self._open = False
        self._trial_at, self._wait = 0.0, _FIRST_S
        self._in_trial = False
        self._rest_until = 0.0

    def is_open(self, now: float) -> bool:
        """Whether calls are stopped: the endpoint fails, or asked for a rest."""
        return self._open or now < self._rest_until

    def allows(self, now: float) -> bool:
        """Whether a call may be made at this time; if one is, `start` must follow."""
        if now < self._rest_until:
            return False
        return not self._open or (now >= self._trial_at and not self._in_trial)

    def start(self) -> None:
        """A call is being made."""
        self._in_trial = self._in_trial or self._open

    def succeed(self) -> None:
        """A call was answered."""
        self._in_trial = False
        self._recent.append(True)
        self._consecutive = 0
        if self._open:
            self._open, self._wait = False, _FIRST_S
            self._recent.clear()

    def fail(self, now: float, rest: float = 0.0) -> None:
        """A call failed.

        Args:
            now: The time.
            rest: Seconds for which the endpoint itself asked not to be called.
        """
        self._in_trial = False
        self._recent.append(False)
        self._consecutive += 1
        self._rest_until = max(self._rest_until, now + min(rest, _MAX_REST_S))
        failed = self._recent.count(False)
        many = len(self._recent) >= _MIN_CALLS and failed >= _SHARE * len(self._recent)
        if self._open:
            self._wait = min(2 * self._wait, _LONGEST_S)
        elif self._consecutive >= _CONSECUTIVE or many:
            self._open = True
        else:
            return
        # Jitter: not all devices at the same moment.
        self._trial_at = now + self._wait * self._rng.uniform(0.75, 1.25)

    def abandon(self) -> None:
        """A call was given up before its outcome said anything about the endpoint."""
        self._in_trial = False


#: Second requests that may be saved up: a burst of failures must not find a year's savings.
_MAX_SAVED = 10.0
#: Credit from the start for failover to another endpoint: as many calls as fail in a row until the
#: breaker of a dead endpoint opens.
_CREDIT = 5
#: Share of the budget that hedges may take; the rest is for retries.
_HEDGES = 0.55
_BASE_S = 0.025


class RetryBudget:
    """Counts calls, and allows a share of them a second request. Not thread-safe.

    Args:
        share: Second requests a call; 0: none at all, and no credit at the start.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = self._hedges = 0.0
        self._credit = _CREDIT if share > 0 else 0

    def call(self) -> None:
        """A call is made."""
        self._saved = min(_MAX_SAVED, self._saved + self._share)
        self._hedges = min(_MAX_SAVED, self._hedges + self._share * _HEDGES)

    def retry(self) -> bool:
        """Spend a second request, if there is one."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def failover(self) -> bool:
        """Spend one on another endpoint; the first few need nothing saved.

        An app that has just started has saved nothing, and its first endpoint may be dead.
        """
        if self.retry():
            return True
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def hedge(self) -> bool:
        """Spend a second request on a hedge, if there is one."""
        if self._hedges < 1 or not self.retry():
            return False
        self._hedges -= 1
        return True


def backoff(rng: random.Random, attempts: int) -> float:
    """Seconds before the next attempt, with jitter so that many devices do not retry at once."""
    return rng.uniform(0.2, 1.0) * _BASE_S * float(2**attempts)
