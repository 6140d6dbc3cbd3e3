"""Requests of one call side by side, each in a thread of its own.

`ConcurrentRequests` is a call's view of the world: the time, and requests that end; tests bring
their own. `ThreadedRequests` sends through `edgeserve.oip.client`. Name resolution has no timeout
in any library, so a call waits on a queue until its deadline, and a request that is still in flight
then ends by itself.
"""

from __future__ import annotations

import os
import queue
import ssl
import threading
import time
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
    "timeout": RequestFailure("too slow"),
    "size": RequestFailure("a reply longer than answer_mb", retryable=False),
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

        if self._threads.acquire(blocking=False):
            threading.Thread(target=work, name="edgeserve-fallback", daemon=True).start()
        else:
            self._ended.put((number, _TOO_MANY))
        return number

    def _send(
        self, url: str, message: EndpointRequest, deadline: float, cancelled: threading.Event
    ) -> RequestOutcome:
        left = max(1, int(1e3 * (deadline - time.monotonic())))
        headers = {**message.headers, "x-request-deadline-ms": str(left)}
        request = EndpointRequest(message.path, headers, message.body)
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
