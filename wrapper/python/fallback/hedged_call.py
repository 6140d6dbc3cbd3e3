"""`HedgedCaller`: one call to endpoints: at most two requests, a deadline, a budget, breakers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from edgeserve.wrapper.fallback.egress import origin
from edgeserve.wrapper.fallback.resilience import (
    CircuitBreaker,
    LatencyWindow,
    RetryBudget,
    backoff,
)
from edgeserve.wrapper.fallback.transport import (
    ConcurrentRequests,
    EndpointReply,
    EndpointRequest,
    RequestFailure,
    RequestOutcome,
)

__all__ = ["BadReply", "CallLost", "CallWon", "HedgedCaller"]

T = TypeVar("T")

#: Statuses after which asking again, or another endpoint, may help.
_RETRYABLE = (408, 425, 429, 500, 502, 503, 504)
#: Nothing is sent with less time than this left: it could only come too late.
_TOO_LATE_S = 0.002
_NO_TIME = "no time left"


class BadReply(Exception):
    """A reply that is not what an endpoint of the protocol says."""


@dataclass(frozen=True)
class CallWon(Generic[T]):
    """An endpoint's answer, who gave it, and after how many requests."""

    value: T
    url: str
    attempts: int


class CallLost(Exception):
    """No endpoint answered in time.

    Attributes:
        told: What happened to each request, in a few words: of which endpoint, and which ones were
            not asked and why.
        attempts: Requests that were sent.
    """

    def __init__(self, told: Sequence[str], attempts: int) -> None:
        super().__init__("; ".join(told))
        self.told, self.attempts = tuple(told), attempts


class HedgedCaller:
    """Calls endpoints, and remembers how they do. Calls may be made from several threads.

    Args:
        urls: Endpoints, best first.
        attempts: Requests a call at most.
        budget: Share of calls that may cost a second request.
        hedge: Whether to ask again what takes longer than nearly all.
        at_once: Calls at a time.
        rng: For jitter.
    """

    def __init__(
        self,
        urls: Sequence[str],
        attempts: int,
        budget: float,
        hedge: bool,
        at_once: int,
        rng: random.Random | None = None,
    ) -> None:
        self._rng = rng or random.Random()
        self._most, self._hedging = attempts, hedge
        self._budget, self._latency = RetryBudget(budget), LatencyWindow()
        self.breakers = {url: CircuitBreaker(self._rng) for url in urls}
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(at_once)

    def call(
        self,
        race: ConcurrentRequests,
        message: EndpointRequest,
        deadline: float,
        read: Callable[[EndpointReply], T],
    ) -> CallWon[T]:
        """Ask until an endpoint has answered.

        Args:
            race: The world.
            message: What to send.
            deadline: After this nobody waits, on the race's clock.
            read: Makes the answer of a reply; raises `BadReply` where it is none.

        Raises:
            Lost: nobody answered in time, or no endpoint may be asked now.
        """
        if not self._places.acquire(blocking=False):
            raise CallLost(["as many calls under way as are allowed at a time"], 0)
        try:
            return _HedgedCall(self, race, message, deadline, read).go()
        finally:
            self._places.release()

    def _pick(self, now: float, used: Sequence[str]) -> str | None:
        """The best endpoint that may be asked, one not asked yet if there is one."""
        with self._lock:
            free = [url for url, breaker in self.breakers.items() if breaker.allows(now)]
            fresh = [url for url in free if url not in used]
            chosen = next(iter(fresh or free), None)
            if chosen is not None:
                self.breakers[chosen].began()
            return chosen


class _HedgedCall(Generic[T]):
    """One call on its way."""

    def __init__(
        self,
        caller: HedgedCaller,
        race: ConcurrentRequests,
        message: EndpointRequest,
        deadline: float,
        read: Callable[[EndpointReply], T],
    ) -> None:
        self._of, self._race, self._message = caller, race, message
        self._deadline, self._read = deadline, read
        self._flying: dict[int, tuple[str, float]] = {}
        self._told: list[str] = []
        self._used: list[str] = []
        self._why_not = ""
        self._next: float | None = race.now()
        self._hedge: float | None = None

    def go(self) -> CallWon[T]:
        with self._of._lock:
            self._of._budget.call()
        while True:
            self._send_if_due()
            if not self._flying and self._next is None:
                raise self._lost()
            waits = [t for t in (self._next, self._hedge, self._deadline) if t is not None]
            ended = self._race.next(min(waits))
            if ended is None:
                self._time_passed()
            elif won := self._ended(*ended):
                return won

    def _send_if_due(self) -> None:
        now = self._race.now()
        if self._next is None or now < self._next:
            return
        self._next = None
        if now > self._deadline - _TOO_LATE_S:
            self._told.append(_NO_TIME)
            return
        url = self._of._pick(now, self._used)
        if url is None:
            self._told.append("no endpoint may be asked now: circuit breaker open")
            return
        number = self._race.start(url, self._message, self._deadline)
        self._flying[number] = (url, now)
        self._used.append(url)
        after = self._of._latency.hedge_after() if self._of._hedging else None
        self._hedge = now + after if after and len(self._used) < self._of._most else None

    def _time_passed(self) -> None:
        now = self._race.now()
        if now >= self._deadline:
            self._give_up(now)
            raise self._lost()
        if self._hedge is not None and now >= self._hedge:
            self._hedge = None
            with self._of._lock:
                may = self._of._budget.hedge()
            if may:
                self._next = now

    def _give_up(self, now: float) -> None:
        """The deadline has passed: whoever has not answered by now has failed."""
        waited = ", ".join(origin(url) for url, _ in self._flying.values())
        self._told.append(f"{waited}: no answer within the deadline".removeprefix(": "))
        self._why_not = self._why_not or _NO_TIME
        with self._of._lock:
            for number, (url, began) in self._flying.items():
                self._race.abandon(number)
                self._of.breakers[url].bad(now)
                self._of._latency.add(now - began)
        self._flying.clear()

    def _ended(self, number: int, outcome: RequestOutcome) -> CallWon[T] | None:
        """A request ended: the answer, or what is to be done next."""
        url, began = self._flying.pop(number)
        now = self._race.now()
        if isinstance(outcome, EndpointReply) and outcome.status == 200:
            try:
                value = self._read(outcome)
            except BadReply as error:
                outcome = RequestFailure(str(error))
            else:
                self._won(url, now, now - began)
                return CallWon(value, url, len(self._used))
        self._failed(url, now, outcome)
        return None

    def _won(self, url: str, now: float, seconds: float) -> None:
        with self._of._lock:
            self._of.breakers[url].good()
            self._of._latency.add(seconds)
            for number, (other, began) in self._flying.items():
                self._race.abandon(number)
                self._of.breakers[other].undecided()
                self._of._latency.add(now - began)  # it took at least so long

    def _failed(self, url: str, now: float, outcome: RequestOutcome) -> None:
        rest, again = 0.0, True
        if isinstance(outcome, RequestFailure):
            self._told.append(f"{origin(url)}: {outcome.told}")
            again = outcome.again
        else:
            self._told.append(f"{origin(url)}: status {outcome.status}{_error_code(outcome)}")
            again, rest = outcome.status in _RETRYABLE, _retry_after(outcome)
        mine = not again and isinstance(
            outcome, EndpointReply
        )  # it is well and will not answer this
        with self._of._lock:
            if mine:
                self._of.breakers[url].good()
            else:
                self._of.breakers[url].bad(now, rest)
            others = len(self._of.breakers) > len(set(self._used))
            dead = others and isinstance(outcome, RequestFailure)
            may = (again or (others and not mine)) and self._may_again(now, dead)
        if mine:
            self._why_not = "this answer is no failure of the endpoint"
        if may:
            self._hedge = None
            self._next = now if others else now + max(rest, backoff(self._of._rng, len(self._used)))
            if self._next > self._deadline - _TOO_LATE_S:
                self._next = None

    def _may_again(self, now: float, dead: bool) -> bool:
        """Whether a second request may be made; ``dead``: no reply, and there is another one."""
        if self._next is not None:
            return False
        if len(self._used) >= self._of._most:
            self._why_not = f"attempts={self._of._most}"
        elif now >= self._deadline - _TOO_LATE_S:
            self._why_not = _NO_TIME
        elif not (self._of._budget.turn() if dead else self._of._budget.retry()):
            self._why_not = "the budget for second requests is used up"
        else:
            return True
        return False

    def _lost(self) -> CallLost:
        told = self._told or ["no endpoint answered"]
        return CallLost([*told, *self._not_asked()], len(self._used))

    def _not_asked(self) -> list[str]:
        """Endpoints that were not asked, and why, where another one was."""
        now, rest = self._race.now(), [u for u in self._of.breakers if u not in self._used]
        if not self._used or not rest:
            return []
        with self._of._lock:
            alone = {url for url in rest if self._of.breakers[url].keeps_away(now)}
        why = {url: "circuit breaker open" if url in alone else self._why_not for url in rest}
        return [f"{origin(url)}: not asked ({why[url] or _NO_TIME})" for url in rest]


def _error_code(reply: EndpointReply) -> str:
    """The code of edgeserve's own errors, where the reply names one."""
    import re

    found = re.search(rb"EDGE-[A-Z]{2,12}-\d{3}", reply.body[:2000])
    return f" ({found[0].decode()})" if found else ""


def _retry_after(reply: EndpointReply) -> float:
    """Seconds for which an endpoint asks to be left alone."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = reply.headers.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value[:9]) * unit
    return 0.0
