"""`HedgedCaller`: one call to endpoints: at most two requests, a deadline, a budget, breakers."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from edgeserve.durations import LatencyWindow
from edgeserve.oip.client import EndpointReply, EndpointRequest
from edgeserve.wrapper.fallback.egress import origin
from edgeserve.wrapper.fallback.replies import BadReply, reading_time
from edgeserve.wrapper.fallback.transport import (
    CircuitBreaker,
    ConcurrentRequests,
    RequestFailure,
    RequestOutcome,
    RetryBudget,
    backoff,
)

T = TypeVar("T")

#: Statuses after which asking again, or another endpoint, may help.
_RETRYABLE = (408, 425, 429, 500, 502, 503, 504)
#: No request is sent with less time than this left, seconds: its reply would be late.
_MIN_TIME_S = 0.002
_NO_TIME = "no time left"


@dataclass(frozen=True)
class CallWon(Generic[T]):
    """An endpoint's answer, its URL, and the number of requests that were sent."""

    value: T
    url: str
    attempts: int


class CallLost(Exception):
    """No endpoint answered in time.

    Attributes:
        outcomes: The outcome of each request in a few words, by endpoint, and for each endpoint
            that was not asked the reason.
        attempts: Requests that were sent.
    """

    def __init__(self, outcomes: Sequence[str], attempts: int) -> None:
        super().__init__("; ".join(outcomes))
        self.outcomes, self.attempts = tuple(outcomes), attempts


class HedgedCaller:
    """Calls endpoints, and remembers their health. Threads may share it.

    Args:
        urls: Endpoints, best first.
        attempts: Requests a call at most.
        budget: Share of calls that may cost a second request.
        hedge: Whether to send a second request when the reply takes unusually long.
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
        self.rng = rng or random.Random()
        self.attempts, self.hedging = attempts, hedge
        self.budget, self.latency = RetryBudget(budget), LatencyWindow()
        self.breakers = {url: CircuitBreaker(self.rng) for url in urls}
        self.lock = threading.Lock()
        self._calls = threading.BoundedSemaphore(at_once)

    def call(
        self,
        requests: ConcurrentRequests,
        message: EndpointRequest,
        deadline: float,
        read: Callable[[EndpointReply], T],
    ) -> CallWon[T]:
        """Send a request until an endpoint has answered.

        Args:
            requests: Sends requests and knows the time.
            message: The request.
            deadline: The end of the call, on the clock of ``requests``.
            read: Decodes a reply; whatever it raises means that the reply is no answer.

        Raises:
            CallLost: no endpoint answered in time, or none may be asked now.
        """
        if not self._calls.acquire(blocking=False):
            raise CallLost(["as many calls in flight as at_once allows"], 0)
        try:
            return _HedgedCall(self, requests, message, deadline, read).run()
        finally:
            self._calls.release()

    def pick(self, now: float, asked: Sequence[str]) -> str | None:
        """The best endpoint whose breaker allows a call, preferably one not asked yet."""
        with self.lock:
            allowed = [url for url, breaker in self.breakers.items() if breaker.allows(now)]
            other = [url for url in allowed if url not in asked]
            chosen = next(iter(other or allowed), None)
            if chosen is not None:
                self.breakers[chosen].start()
            return chosen


class _HedgedCall(Generic[T]):
    """One call."""

    def __init__(
        self,
        caller: HedgedCaller,
        requests: ConcurrentRequests,
        message: EndpointRequest,
        deadline: float,
        read: Callable[[EndpointReply], T],
    ) -> None:
        self._caller, self._requests, self._message = caller, requests, message
        self._deadline, self._read = deadline, read
        #: URL and start of each request, by its number.
        self._in_flight: dict[int, tuple[str, float]] = {}
        self._outcomes: list[str] = []
        self._asked: list[str] = []
        self._skip_reason = ""
        #: When to send the next request, and when to consider a hedge; None: not at all.
        self._send_at: float | None = requests.now()
        self._hedge_at: float | None = None

    def run(self) -> CallWon[T]:
        with self._caller.lock:
            self._caller.budget.call()
        while True:
            self._send_if_due()
            if not self._in_flight and self._send_at is None:
                raise self._call_lost()
            times = [t for t in (self._send_at, self._hedge_at, self._deadline) if t is not None]
            ended = self._requests.next(min(times))
            if ended is None:
                self._check_timers()
            elif won := self._end(*ended):
                return won

    def _send_if_due(self) -> None:
        now = self._requests.now()
        if self._send_at is None or now < self._send_at:
            return
        self._send_at = None
        if now > self._deadline - _MIN_TIME_S:
            self._outcomes.append(_NO_TIME)
            return
        url = self._caller.pick(now, self._asked)
        if url is None:
            self._outcomes.append("no endpoint may be asked now: circuit breaker open")
            return
        number = self._requests.start(url, self._message, self._deadline)
        self._in_flight[number] = (url, now)
        self._asked.append(url)
        after = self._caller.latency.hedge_after() if self._caller.hedging else None
        more = len(self._asked) < self._caller.attempts
        self._hedge_at = now + after if after and more else None

    def _check_timers(self) -> None:
        now = self._requests.now()
        if now >= self._deadline:
            self._give_up(now)
            raise self._call_lost()
        if self._hedge_at is not None and now >= self._hedge_at:
            self._hedge_at = None
            with self._caller.lock:
                allowed = self._caller.budget.hedge()
            if allowed:
                self._send_at = now

    def _give_up(self, now: float) -> None:
        """The deadline has passed: every request still in flight has failed."""
        waited = ", ".join(origin(url) for url, _ in self._in_flight.values())
        self._outcomes.append(f"{waited}: no answer within the deadline".removeprefix(": "))
        self._skip_reason = self._skip_reason or _NO_TIME
        with self._caller.lock:
            for number, (url, began) in self._in_flight.items():
                self._requests.abandon(number)
                self._caller.breakers[url].fail(now)
                self._caller.latency.add(now - began)
        self._in_flight.clear()

    def _end(self, number: int, outcome: RequestOutcome) -> CallWon[T] | None:
        """Handle the end of a request: the answer, or None and the next step."""
        url, began = self._in_flight.pop(number)
        now = self._requests.now()
        if isinstance(outcome, EndpointReply) and outcome.status == 200:
            try:
                value = self._read_in_time(outcome)
            except Exception as error:  # a stranger's bytes lead a reader to whatever they can
                known = isinstance(error, BadReply)
                what = str(error) if known else f"an unreadable reply ({type(error).__name__})"
                outcome, now = RequestFailure(what), self._requests.now()
            else:
                self._record_success(url, now, now - began)
                return CallWon(value, url, len(self._asked))
        self._record_failure(url, now, outcome)
        return None

    def _read_in_time(self, reply: EndpointReply) -> T:
        """The answer, where there is time to read it: nothing interrupts a parser."""
        if self._requests.now() + reading_time(reply) > self._deadline:
            raise BadReply("a reply that takes longer to read than there is time left")
        value = self._read(reply)
        if self._requests.now() > self._deadline:
            raise BadReply("a reply that was read too late")
        return value

    def _record_success(self, url: str, now: float, seconds: float) -> None:
        with self._caller.lock:
            self._caller.breakers[url].succeed()
            self._caller.latency.add(seconds)
            for number, (other, began) in self._in_flight.items():
                self._requests.abandon(number)
                self._caller.breakers[other].abandon()
                self._caller.latency.add(now - began)  # it took at least so long

    def _record_failure(self, url: str, now: float, outcome: RequestOutcome) -> None:
        caller, rest, rejected = self._caller, 0.0, False
        if isinstance(outcome, RequestFailure):
            self._outcomes.append(f"{origin(url)}: {outcome.reason}")
            retryable = outcome.retryable
        else:
            self._outcomes.append(f"{origin(url)}: status {outcome.status}{_error_code(outcome)}")
            retryable, rest = outcome.status in _RETRYABLE, _retry_after(outcome)
            rejected = not retryable  # a healthy endpoint that will never answer this request
        with caller.lock:
            if rejected:
                caller.breakers[url].succeed()
            else:
                caller.breakers[url].fail(now, rest)
            others = len(caller.breakers) > len(set(self._asked))
            dead = others and isinstance(outcome, RequestFailure)
            again = (retryable or (others and not rejected)) and self._may_retry(now, dead)
        if rejected:
            self._skip_reason = "the reply is no failure of the endpoint"
        if again:
            pause = 0.0 if others else max(rest, backoff(caller.rng, len(self._asked)))
            late = now + pause > self._deadline - _MIN_TIME_S
            self._hedge_at, self._send_at = None, None if late else now + pause

    def _may_retry(self, now: float, dead: bool) -> bool:
        """Whether a second request may be sent; ``dead``: no reply, and there is another one."""
        budget = self._caller.budget
        if self._send_at is not None:
            return False
        if len(self._asked) >= self._caller.attempts:
            self._skip_reason = f"attempts={self._caller.attempts}"
        elif now >= self._deadline - _MIN_TIME_S:
            self._skip_reason = _NO_TIME
        elif not (budget.failover() if dead else budget.retry()):
            self._skip_reason = "the retry budget is used up"
        else:
            return True
        return False

    def _call_lost(self) -> CallLost:
        """The error of the call; it also names each endpoint that was not asked, and why."""
        outcomes = self._outcomes or ["no endpoint answered"]
        now, breakers = self._requests.now(), self._caller.breakers
        with self._caller.lock:
            skipped = {
                url: "circuit breaker open" if breaker.is_open(now) else self._skip_reason
                for url, breaker in breakers.items()
                if self._asked and url not in self._asked
            }
        reasons = [f"{origin(u)}: not asked ({why or _NO_TIME})" for u, why in skipped.items()]
        return CallLost([*outcomes, *reasons], len(self._asked))


def _error_code(reply: EndpointReply) -> str:
    """The code of edgeserve's own errors, where the reply names one."""
    match = re.search(rb"EDGE-[A-Z]{2,12}-\d{3}", reply.body[:2000])
    return f" ({match[0].decode()})" if match else ""


def _retry_after(reply: EndpointReply) -> float:
    """Seconds for which an endpoint asks not to be called."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = reply.headers.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value[:9]) * unit
    return 0.0
