"""Requests to endpoints and their replies, and the one place that sends them over HTTP.

`ConcurrentRequests` is what a call sees of the world: time that passes, requests that end; tests
bring their own. The real one sends through `httpx2`, each request in a thread, none past its
time. A library's timeouts are for single steps (connect, one read), and names are looked up
without any: a server that sends a byte a second is never too slow for them. So whoever calls
waits on a queue with the deadline, and a request that is still under way then is left to end by
itself.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgeserve.errors import FallbackError
from edgeserve.installation import install_command
from edgeserve.wrapper.fallback.policy import Fallback

__all__ = [
    "ConcurrentRequests",
    "EndpointReply",
    "EndpointRequest",
    "RequestFailure",
    "RequestOutcome",
    "ThreadedRequests",
    "Transport",
]


@dataclass(frozen=True)
class EndpointRequest:
    """A request as it leaves: below which path of the endpoint, its headers and its bytes."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class EndpointReply:
    """What an endpoint said, headers in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class RequestFailure:
    """Why there is no reply.

    Attributes:
        told: In a few words, without addresses.
        again: Whether asking the same endpoint again may help.
    """

    told: str
    again: bool = True


RequestOutcome = EndpointReply | RequestFailure


class ConcurrentRequests(Protocol):
    """Requests of one call side by side, and the time."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        """Send a request; it is numbered."""

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        """Wait for a request to end, at most until a time; None: none did."""

    def abandon(self, number: int) -> None:
        """What this request would still say is of no interest."""


#: Threads that requests given up on may still hold, for each call that is allowed at a time.
_SPARE = 4


class Transport:
    """Connections to the endpoints of a contract, kept open between calls.

    Args:
        contract: Whose endpoints, authorities and key.
    """

    def __init__(self, contract: Fallback) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise FallbackError(
                "EDGE-FALLBACK-005",
                "fallback",
                wanted="the package httpx2",
                got="it is not installed",
                hint=install_command("fallback"),
            ) from error
        self._http = httpx2
        self._most = contract.answer_mb << 20
        self._threads = threading.BoundedSemaphore(_SPARE * contract.at_once)
        # No proxies, passwords or redirects from outside: what leaves goes where the contract says.
        self._client = httpx2.Client(
            trust_env=False,
            follow_redirects=False,
            verify=_tls_context(contract.ca),
            headers={"accept-encoding": "identity", "user-agent": "edgeserve"}
            | _auth_header(contract),
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=_SPARE * contract.at_once
            ),
        )

    def race(self) -> ThreadedRequests:
        """The real world, for one call."""
        return ThreadedRequests(self)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def spawn(self, work: Any) -> bool:
        """Run in a thread, if one more may be had."""
        if not self._threads.acquire(blocking=False):
            return False

        def run() -> None:
            try:
                work()
            finally:
                self._threads.release()

        threading.Thread(target=run, name="edgeserve-fallback", daemon=True).start()
        return True

    def send(
        self, url: str, message: EndpointRequest, deadline: float, given_up: threading.Event
    ) -> RequestOutcome:
        """One request, in the calling thread. Never raises."""
        left = max(0.001, deadline - time.monotonic())
        headers = {**message.headers, "x-request-deadline-ms": str(int(left * 1e3))}
        http = self._http
        try:
            with self._client.stream(
                "POST", url + message.path, content=message.body, headers=headers, timeout=left
            ) as response:
                return self._read(response, deadline, given_up)
        except http.ConnectError as error:
            tls = "ssl" in str(error).lower() or "certificate" in str(error).lower()
            return (
                RequestFailure("no trust in its certificate", again=False)
                if tls
                else RequestFailure("no connection")
            )
        except http.TimeoutException:
            return RequestFailure("too slow")
        except (http.HTTPError, http.StreamError, OSError, ValueError) as error:
            return RequestFailure(f"the connection failed ({type(error).__name__})")
        except Exception as error:  # closed by another thread in the middle
            return RequestFailure(f"the connection failed ({type(error).__name__})")

    def _read(self, response: Any, deadline: float, given_up: threading.Event) -> RequestOutcome:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if headers.get("content-encoding", "identity") != "identity":
            return RequestFailure("an answer packed although none was asked for")
        pieces, length = [], 0
        for piece in response.iter_raw():
            length += len(piece)
            if length > self._most:
                return RequestFailure("an answer longer than the contract reads", again=False)
            if given_up.is_set() or time.monotonic() > deadline:
                return RequestFailure("too slow")
            pieces.append(piece)
        return EndpointReply(response.status_code, headers, b"".join(pieces))


class ThreadedRequests:
    """A race in real time (see `edgeserve.wrapper.fallback.transport.ConcurrentRequests`)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ended: queue.SimpleQueue[tuple[int, RequestOutcome]] = queue.SimpleQueue()
        self._given_up: list[threading.Event] = []

    def now(self) -> float:
        return time.monotonic()

    def start(self, url: str, message: EndpointRequest, deadline: float) -> int:
        number, given_up = len(self._given_up), threading.Event()
        self._given_up.append(given_up)

        def work() -> None:
            self._ended.put((number, self._transport.send(url, message, deadline, given_up)))

        if not self._transport.spawn(work):
            self._ended.put(
                (number, RequestFailure("too many requests that never ended", again=False))
            )
        return number

    def next(self, until: float) -> tuple[int, RequestOutcome] | None:
        while True:
            try:
                number, outcome = self._ended.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if not self._given_up[number].is_set():
                return number, outcome

    def abandon(self, number: int) -> None:
        self._given_up[number].set()


def _tls_context(ca: str) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise FallbackError(
            "EDGE-FALLBACK-001",
            "field ca",
            wanted="a PEM file of certificates",
            got=str(error),
            hint="docs/guide/fallback.md explains each field of the contract",
        ) from error


def _auth_header(contract: Fallback) -> dict[str, str]:
    if not contract.key_env:
        return {}
    key = os.environ.get(contract.key_env, "")
    if not key or not key.isascii() or not key.isprintable():
        raise FallbackError(
            "EDGE-FALLBACK-006",
            f"environment variable {contract.key_env}",
            wanted="an API key",
            got="one that is empty or not of printable ASCII" if key else "nothing",
            hint="set it where the app starts; keys stand in no file of a contract",
        )
    return {"authorization": f"Bearer {key}"}
