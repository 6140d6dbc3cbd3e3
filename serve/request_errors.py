"""What a caller is told when a request is not answered: a status, a code, never an inner detail."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from edgeserve.errors import EdgeError, InputError, ServeError

#: How Python shows an object it has no words for: an address of this process's memory.
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")

#: What the operator would run; the path of the installation is none of a remote caller's business.
_COMMAND = re.compile(r"(?:pip install|git -C) .*")


class RequestRejected(Exception):
    """A request that is not answered, and why.

    Attributes:
        status: Of HTTP.
        error: What the caller is told.
        retry_after: Seconds after which to try again; None: trying again does not help.
    """

    def __init__(self, status: int, error: EdgeError, retry_after: float | None = None) -> None:
        super().__init__(error.message)
        self.status, self.error, self.retry_after = status, error, retry_after

    def headers(self) -> list[tuple[bytes, bytes]]:
        """``Retry-After`` in whole seconds, and in milliseconds for callers in more of a hurry."""
        if self.retry_after is None:
            return []
        return [
            (b"retry-after", str(max(1, math.ceil(self.retry_after))).encode()),
            (b"retry-after-ms", str(max(1, math.ceil(self.retry_after * 1e3))).encode()),
        ]


def error_line(error: EdgeError) -> str:
    """Code and message, as a remote caller may see them."""
    return f"{error.code} {_OBJECT.sub('it', error.message)}"


def error_body(error: EdgeError, request_id: str) -> bytes:
    """The body that tells an error: the protocol's ``error``, and what helps to look it up."""
    whole: dict[str, Any] = {
        "error": error_line(error),
        "code": error.code,
        "hint": _COMMAND.sub("the server's log names the command for its operator", error.hint),
        "request_id": request_id,
    }
    return msgspec.json.encode(whole)


def overloaded(model: str, retry_after: float, why: str) -> RequestRejected:
    """The queue is as long as deadlines allow."""
    error = ServeError(
        "EDGE-SERVE-020",
        f"model {model}",
        wanted="an answer within the deadline",
        got=why,
        hint="try again after Retry-After, ask another endpoint, or answer on the device",
    )
    return RequestRejected(503, error, retry_after)


def rejection_of(error: Exception, model: str) -> RequestRejected:
    """What a caller is told of an error that came up in the model's own work.

    An error about the input is told as it is, because it speaks of what the caller sent. Of
    anything else the caller is told that it happened; the log tells the rest.
    """
    if isinstance(error, RequestRejected):
        return error
    if isinstance(error, InputError):
        return RequestRejected(400, error)
    return model_failed(model)


def model_failed(model: str) -> RequestRejected:
    """The model failed; what happened stands in the log, under the same request id."""
    error = ServeError(
        "EDGE-SERVE-026",
        f"model {model}",
        wanted="an answer",
        got="a failure of the model",
        hint="the endpoint's log tells more under the same request id",
    )
    return RequestRejected(500, error)
