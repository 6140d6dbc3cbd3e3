"""Structured logs: one JSON object a line, on one stream. Never a request's body, never a key."""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any, TextIO

import msgspec

__all__ = ["Log", "new_id"]


#: The system's own source gives the GIL away at each call, under load for a tenth of a millisecond.
_IDS = random.Random()


def new_id() -> str:
    """A request id: 64 random bits, which need to be different and not secret."""
    return f"{_IDS.getrandbits(64):016x}"


class Log:
    """Writes events.

    Args:
        stream: Where to; None: standard error.
        requests: Whether each request is told, not only loads and faults.
    """

    def __init__(self, stream: TextIO | None = None, requests: bool = True) -> None:
        self._stream, self.requests = stream, requests
        self._lock = threading.Lock()
        self._shed, self._shed_at = 0, float("-inf")
        self._encode = msgspec.json.Encoder().encode

    def event(self, what: str, **fields: Any) -> None:
        """One line: when, what, and the fields that are not None."""
        told = {"at": round(time.time(), 3), "event": what}
        told |= {name: value for name, value in fields.items() if value is not None}
        line = self._encode(told).decode()
        with self._lock:
            print(line, file=self._stream or sys.stderr, flush=True)

    def fault(self, request_id: str, model: str, error: BaseException) -> None:
        """What went wrong inside, in full: the caller is told only that it did."""
        import traceback

        trace = "".join(traceback.format_exception(error))
        self.event("fault", request_id=request_id, model=model, error=repr(error), trace=trace)

    def request(self, exchange: Any, route: str, model: str, key: str) -> None:
        """One request: which route and model, for whom, how it ended and how long it took.

        In a flood those that are turned away are told once a second, with their number.
        """
        if exchange.status == 503:
            self._shed += 1
            if exchange.came - self._shed_at < 1.0:
                return
            shed, self._shed, self._shed_at = self._shed, 0, exchange.came
        else:
            shed = None
        took = 1e3 * (time.monotonic() - exchange.came)
        self.event(
            "request",
            request_id=exchange.id,
            route=route,
            model=model or None,
            key=key or None,
            status=exchange.status,
            ms=round(took, 3),
            bytes_out=exchange.sent,
            shed=shed,
        )
