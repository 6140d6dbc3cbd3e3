"""Requests of one call side by side, each in a thread of its own, and limits on such calls.

`ConcurrentRequests` is a call's view of the world: the time, and requests that end; tests bring
their own. `ThreadedRequests` sends through `edgeserve.oip.client`. Name resolution has no timeout
in any library, so a call waits on a queue until its deadline, and a request that is still in flight
then ends by itself.

A circuit breaker stops calls to an endpoint that fails, and finds out when it works again. The
retry budget bounds the cost of retries and hedges.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import random
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from edgeserve.errors import FallbackError
from edgeserve.installation import install_command
from edgeserve.oip.client import (
    ClientError,
    EndpointReply,
    EndpointRequest,
    HttpClient,
    bearer_header,
)
from edgeserve.wrapper.fallback.policy import Fallback, field_error

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


@dataclass(frozen=True)
class RequestFailure:
    """Why there is no reply.

    Attributes:
        reason: In a few words, without addresses.
        retryable: Whether asking the same endpoint again may help.
    """

    reason: str
    retryable: bool = True


RequestOutcome = EndpointReply | RequestFailure

#: By kind of the client's error.
_FAILURES = {
    "connection": RequestFailure("no connection"),
    "certificate": RequestFailure("its certificate is not trusted", retryable=False),
    "tls": RequestFailure("it speaks no TLS, or another version: is it http://?", retryable=False),
    "timeout": RequestFailure("too slow"),
    "size": RequestFailure("a reply longer than the model's answer", retryable=False),
    "encoding": RequestFailure("a compressed reply, which no request accepts"),
}
_TOO_MANY = RequestFailure("too many requests that never ended", retryable=False)


class ConcurrentRequests(Protocol):
    """The requests of one call, and the time."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        """Send a request and return its number."""

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        """Wait for a request to end, at most until a time; None: none did."""

    def abandon(self, number: int) -> None:
        """Ignore the outcome of a request."""


#: Threads that abandoned requests may still hold, for each call that is allowed at a time.
_THREADS_PER_CALL = 4


class Transport:
    """Connections to the endpoints of a contract, kept open between calls.

    Args:
        contract: Its endpoints, certificate authorities and API key.

    Raises:
        FallbackError: EDGE-FALLBACK-001 the certificate authorities, -005 httpx2 is missing, -006
            the API key.
    """

    def __init__(self, contract: Fallback) -> None:
        threads = _THREADS_PER_CALL * contract.at_once
        self._threads = threading.BoundedSemaphore(threads)
        headers, context = _auth_header(contract.key_env), _tls_context(contract.ca)
        try:
            self._client = HttpClient(headers, contract.answer_mb << 20, context, threads)
        except ModuleNotFoundError as error:
            raise FallbackError(
                "EDGE-FALLBACK-005",
                "fallback",
                wanted="the package httpx2",
                got="it is not installed",
                hint=install_command("fallback"),
            ) from error

    def requests(self) -> ThreadedRequests:
        """The requests of one call."""
        return ThreadedRequests(self._client, self._threads)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class ThreadedRequests:
    """`ConcurrentRequests` in real time.

    Args:
        client: Sends the requests.
        threads: How many threads more may be started.
    """

    def __init__(self, client: HttpClient, threads: threading.BoundedSemaphore) -> None:
        self._client, self._threads = client, threads
        self._ended: queue.SimpleQueue[tuple[int, RequestOutcome]] = queue.SimpleQueue()
        self._cancelled: list[threading.Event] = []

    def now(self) -> float:
        return time.monotonic()

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number, cancelled = len(self._cancelled), threading.Event()
        self._cancelled.append(cancelled)

        def work() -> None:
            try:
                self._ended.put((number, self._send(url, message, deadline, cancelled)))
            finally:
                self._threads.release()

        if not self._threads.acquire(blocking=False):
            self._ended.put((number, _TOO_MANY))
            return number
        try:
            threading.Thread(target=work, name="edgeserve-fallback", daemon=True).start()
        except RuntimeError:  # the machine gives no more threads
            self._threads.release()
            self._ended.put((number, _TOO_MANY))
        return number

    def _send(
        self, url: str, message: EndpointRequest, deadline: float, cancelled: threading.Event
    ) -> RequestOutcome:
        left = max(1, int(1e3 * (deadline - time.monotonic())))
        headers = {**message.headers, "x-request-deadline-ms": str(left)}
        request = dataclasses.replace(message, headers=headers)
        try:
            return self._client.send("POST", url, request, deadline, cancelled)
        except ClientError as error:
            lost = RequestFailure(f"the connection failed ({type(error.__cause__).__name__})")
            return _FAILURES.get(error.kind, lost)
        except Exception as error:  # another thread closed the client meanwhile
            return RequestFailure(f"the connection failed ({type(error).__name__})")

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        while True:
            try:
                number, outcome = self._ended.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if not self._cancelled[number].is_set():
                return number, outcome

    def abandon(self, number: int) -> None:
        self._cancelled[number].set()


def _tls_context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise field_error("ca", "a PEM file of certificates", str(error)) from error


def _auth_header(variable: str) -> dict[str, str]:
    key = os.environ.get(variable, "") if variable else ""
    try:
        if variable and not key:
            raise ValueError("an empty key" if variable in os.environ else "nothing")
        return bearer_header(key)
    except ValueError as error:
        raise FallbackError(
            "EDGE-FALLBACK-006",
            f"environment variable {variable}",
            wanted="an API key",
            got=str(error),
            hint="set it where the app starts; a contract never stores the key itself",
        ) from error
