"""What leaves the device: made here and nowhere else, declared, logged, or refused."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

from edgeserve import oip
from edgeserve.errors import FallbackError
from edgeserve.types.base import Value
from edgeserve.wrapper.engine import Arrays
from edgeserve.wrapper.fallback.transport import EndpointRequest

__all__ = [
    "EgressPolicy",
    "EgressRecord",
    "describe_payload",
    "origin",
    "raw_request",
    "request_headers",
    "tensor_request",
]

_LOG = logging.getLogger("edgeserve.fallback")


class EgressRecord(Value, frozen=True):
    """What left the device for one call.

    Attributes:
        to: Endpoints that may have got it, scheme and host.
        what: "raw input" or the tensors' names, dtypes and shapes.
        bytes: How much.
        why: The trigger.
        request_id: As the endpoint's log has it.
    """

    to: tuple[str, ...]
    what: str
    bytes: int
    why: str
    request_id: str


class EgressPolicy:
    """The one way out: everything that is sent passes here.

    Args:
        urls: The contract's endpoints.
        closed_by: Who says that nothing may leave; empty: nobody.
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

    def passes(self, message: EndpointRequest, what: str, why: str) -> None:
        """Log what is about to leave.

        Raises:
            FallbackError: EDGE-FALLBACK-004, nothing may.
        """
        if self.closed_by:
            raise FallbackError(
                "EDGE-FALLBACK-004",
                "fallback",
                wanted="nothing to leave this device",
                got=f"a call to an endpoint, which {self.closed_by} forbids",
                hint="this is a fault of edgeserve: please report it; nothing was sent",
            )
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
    """What a request with these tensors holds, in words."""
    told = ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in feed.items())
    return f"tensors: {told}"


def tensor_request(model: str, feed: Arrays, binary: bool = True) -> EndpointRequest:
    """An inference request of the protocol."""
    tensors = [oip.Tensor(name, array) for name, array in feed.items()]
    body, head = oip.write_request(tensors, binary=binary)
    lines = request_headers("application/octet-stream" if binary else "application/json")
    if head is not None:
        lines["inference-header-content-length"] = str(head)
    return EndpointRequest(f"/v2/models/{model}/infer", lines, body)


def raw_request(model: str, data: bytes) -> EndpointRequest:
    """The raw input for edgeserve's `predict`."""
    return EndpointRequest(
        f"/v2/models/{model}/predict", request_headers("application/octet-stream"), data
    )


def request_headers(kind: str) -> dict[str, str]:
    """Of any request: what its body is, and an id of its own."""
    return {"content-type": kind, "x-request-id": uuid.uuid4().hex}
