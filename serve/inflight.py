"""The bytes that requests make the endpoint hold: one budget for REST and gRPC together.

Counted is what is really held: the pieces of a body as they come, what is unpacked as it is
unpacked, the objects that a text becomes, and an answer until its reader has taken it. Each is
counted before it is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from edgeserve.environment import usable_cores
from edgeserve.serve.request_errors import RequestRejected, rejected

#: Where large bodies are unpacked and large messages parsed, so many at a time: not in the loop.
DECODERS = ThreadPoolExecutor(max(1, usable_cores() // 2), "edgeserve-decode")


class InflightBytes:
    """Bytes that the endpoint holds for requests, over all connections; any thread may count.

    Args:
        most: What may be held at a time.

    Attributes:
        held: What is held now.
        peak: The most that was held since it was last set.
    """

    def __init__(self, most: int) -> None:
        self.most, self.held, self.peak = most, 0, 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Take so many more; a negative count gives them back.

        Raises:
            RequestRejected: EDGE-SERVE-028, that would be too many.
        """
        with self._lock:
            if count > 0 and self.held + count > self.most:
                raise no_room()
            self.held += count
            self.peak = max(self.peak, self.held)

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Count so many while the block runs (errors as `add`)."""
        self.add(count)
        try:
            yield
        finally:
            self.add(-count)


class RequestBytes:
    """What one request, or one connection, holds of the budget.

    Attributes:
        full: Whether something was left out because there was no room.
    """

    def __init__(self, inflight: InflightBytes) -> None:
        self._inflight, self._held = inflight, 0
        self._lock = threading.Lock()
        self._done = self.full = False

    def add(self, count: int) -> None:
        """Hold so many more (errors as `InflightBytes.add`; so after `release`)."""
        with self._lock:
            if self._done:
                raise no_room()
            self._inflight.add(count)
            self._held += count

    def set(self, total: int) -> None:
        """Hold so many in all (errors as `InflightBytes.add`)."""
        if total != self._held:
            self.add(total - self._held)

    def release(self) -> None:
        """Hold nothing any more: a thread that still works for the request is to stop."""
        with self._lock:
            self._inflight.add(-self._held)
            self._held, self._done = 0, True


def no_room() -> RequestRejected:
    """The rejection of a request that the budget has no room for: EDGE-SERVE-028."""
    wanted, got = "room for the request", "as many bytes in flight as it may hold"
    return rejected("EDGE-SERVE-028", "endpoint", wanted, got, retry_after=1.0)
