"""What a caller is told when a request is not answered: a status, a code, never an inner detail."""

from __future__ import annotations

import math
import re
import traceback
from typing import Any

import msgspec

from edgeserve.errors import EdgeError, InputError, ServeError

#: How Python shows an object it has no words for: an address of this process's memory.
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")

#: What the operator would run; the path of the installation is none of a remote caller's business.
_COMMAND = re.compile(r"(?:pip install|git -C) .*")

#: By code, the status of HTTP and what helps; empty: that depends on the request.
_REJECTIONS = {
    "EDGE-SERVE-010": (
        400,
        "docs/guide/serve.md shows one; clients of the protocol write them for you",
    ),
    "EDGE-SERVE-011": (
        400,
        "see the inputs and outputs in the model's metadata, and docs/guide/serve.md",
    ),
    "EDGE-SERVE-012": (400, "docs/guide/serve.md lists the headers that the endpoint reads"),
    "EDGE-SERVE-013": (413, "send less at a time, or raise --body-mb"),
    "EDGE-SERVE-014": (400, "send it as it is, without Content-Encoding"),
    "EDGE-SERVE-015": (408, "send it faster, or raise --body-s"),
    "EDGE-SERVE-016": (404, "GET /openapi.json lists the paths"),
    "EDGE-SERVE-017": (404, "POST /v2/repository/index lists the models"),
    "EDGE-SERVE-018": (
        503,
        "put a good bundle in its place and load again; the endpoint's log says why it failed",
    ),
    "EDGE-SERVE-019": (400, ""),
    "EDGE-SERVE-020": (
        503,
        "try again after Retry-After, ask another endpoint, or answer on the device",
    ),
    "EDGE-SERVE-022": (429, "try again after Retry-After, or ask for a larger quota"),
    "EDGE-SERVE-023": (401, "send the header `Authorization: Bearer KEY`"),
    "EDGE-SERVE-024": (403, "start it with --control, and with --keys where others can reach it"),
    "EDGE-SERVE-025": (400, "replace the bundle at its path instead"),
    "EDGE-SERVE-026": (500, "the endpoint's log tells more under the same request id"),
    "EDGE-SERVE-027": (503, "try again, or raise --memory-mb"),
    "EDGE-SERVE-028": (503, "try again after Retry-After"),
    "EDGE-SERVE-029": (
        403,
        "ask for http://127.0.0.1 or http://localhost, or start it with --cors-origin or --keys",
    ),
    "EDGE-SERVE-042": (503, "try again after Retry-After"),
    "EDGE-SERVE-043": (503, "try again after Retry-After, or allow more replicas"),
    "EDGE-SERVE-900": (
        500,
        "the endpoint's log tells more under the same request id: please report it",
    ),
}


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


def rejected(
    code: str,
    thing: str,
    wanted: str,
    got: str,
    *,
    status: int | None = None,
    hint: str | None = None,
    retry_after: float | None = None,
) -> RequestRejected:
    """The rejection of a code, with the status and the hint that are usual for it.

    Args:
        code: EDGE-SERVE-010 and up.
        thing: What it is about.
        wanted: What was expected; may be empty.
        got: What was found instead.
        status: Another one than the usual.
        hint: Likewise.
        retry_after: As `RequestRejected` has it.
    """
    usual, helps = _REJECTIONS[code]
    error = ServeError(code, thing, wanted=wanted, got=got, hint=hint or helps)
    return RequestRejected(status or usual, error, retry_after)


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


def forget_frames(error: BaseException | None) -> None:
    """Empty the frames that an error came through.

    They hold the request's body, and whatever holds the error would hold it too: in a cycle, until
    the next garbage collection.
    """
    found = [error]
    for one in found:
        if one is not None:
            traceback.clear_frames(one.__traceback__)
            found += [e for e in (one.__cause__, one.__context__) if e not in found]


def model_failed(model: str) -> RequestRejected:
    """The model failed; what happened stands in the log, under the same request id."""
    return rejected("EDGE-SERVE-026", f"model {model}", "an answer", "a failure of the model")
