"""Control of the data that leaves the device: declared, logged, or refused."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

from edgeserve.errors import FallbackError
from edgeserve.oip.client import EndpointRequest
from edgeserve.types.base import Value
from edgeserve.wrapper.engine import Arrays

_LOG = logging.getLogger("edgeserve.fallback")


class EgressRecord(Value, frozen=True):
    """The data that left the device for one call.

    Attributes:
        to: Endpoints that may have received it, scheme and host.
        what: "raw input" or the tensors' names, dtypes and shapes.
        bytes: Length of one request's body.
        why: The trigger.
        request_id: As in the endpoint's log.
    """

    to: tuple[str, ...]
    what: str
    bytes: int
    why: str
    request_id: str


class EgressPolicy:
    """The only way out of the device: every request passes here before it is sent.

    Args:
        urls: The contract's endpoints.
        closed_by: Who forbids that data leaves; empty: nobody.
        on_leave: Called with each `EgressRecord`, before anything is sent.
    """

    def __init__(
        self,
        urls: tuple[str, ...],
        closed_by: str = "",
        on_leave: Callable[[EgressRecord], None] | None = None,
    ) -> None:
        self.closed_by = closed_by
        self._to, self._on_leave = tuple(origin(url) for url in urls), on_leave

    def check(self, message: EndpointRequest, what: str, why: str) -> None:
        """Log the data that is about to leave.

        Raises:
            FallbackError: EDGE-FALLBACK-004, no data may leave.
        """
        if self.closed_by:
            wanted = "no data to leave this device"
            got = f"a call to an endpoint, which {self.closed_by} forbids"
            hint = "this is a fault of edgeserve: please report it; nothing was sent"
            raise FallbackError("EDGE-FALLBACK-004", "fallback", wanted=wanted, got=got, hint=hint)
        left = EgressRecord(self._to, what, len(message.body), why, message.headers["x-request-id"])
        _LOG.info(
            "%d bytes (%s) may leave to %s because of %s, request %s",
            left.bytes,
            left.what,
            ", ".join(left.to),
            left.why,
            left.request_id,
        )
        if self._on_leave:
            self._on_leave(left)


def origin(url: str) -> str:
    """Scheme, host and port of an endpoint, no path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def describe_payload(feed: Arrays) -> str:
    """Names, dtypes and shapes of the tensors in a request."""
    shapes = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in feed.items())
    return f"tensors: {shapes}"


def with_request_id(message: EndpointRequest) -> EndpointRequest:
    """The same request with a random id, under which the endpoint logs it."""
    headers = {**message.headers, "x-request-id": uuid.uuid4().hex}
    return dataclasses.replace(message, headers=headers)
