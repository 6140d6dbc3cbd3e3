"""Client of the Open Inference Protocol over HTTP: transport, encoding and decoding.

`HttpClient` sends requests to the URL it is given and nowhere else: no proxies, credentials or
redirects from the environment. A library's timeouts bound single steps (connect, one read), and a
server that sends a byte a second passes them all; so each request has a deadline of its own, which
is compared with the clock whenever a piece of the reply arrives.

The other functions write requests and read replies. Errors are `ClientError`; the rooms give them
their own codes. Importing this module loads no HTTP library.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import msgspec
import numpy as np

from edgeserve.oip.messages import InferResponse, read_response, write_request
from edgeserve.oip.tensors import BadMessage, Tensor
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.records import RanOn, Record
from edgeserve.types.tensors import Signature

_HEAD_LENGTH = "inference-header-content-length"
_BYTES, _JSON = "application/octet-stream", "application/json"


class ClientError(Exception):
    """A request without a usable reply.

    Attributes:
        kind: "connection" (none can be made), "certificate" (TLS does not trust it), "tls" (it
            speaks no TLS, or another version), "interrupted" (the connection failed), "timeout",
            "size" (the reply is too long), "encoding" (it is compressed), or one of a caller's own.
        wanted: The expectation; may be empty.
        got: The actual result, without addresses.
    """

    def __init__(self, kind: str, got: str, wanted: str = "") -> None:
        super().__init__(got)
        self.kind, self.wanted, self.got = kind, wanted, got


@dataclass(frozen=True)
class EndpointRequest:
    """A request: path below the endpoint's URL, headers by lower-case name, body.

    Attributes:
        longest: Bytes of a reply that are read at most; None: as many as the client reads.
    """

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    longest: int | None = None


@dataclass(frozen=True)
class EndpointReply:
    """A reply: HTTP status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpClient:
    """Connections to HTTP servers, kept open between requests; threads may share it.

    Args:
        headers: Sent with every request.
        max_body: Longest reply that is read, bytes.
        verify: True: the HTTP library's own certificate authorities; else an `ssl.SSLContext`.
        keepalive: Idle connections that are kept at most.

    Raises:
        ModuleNotFoundError: httpx2 is not installed.
    """

    def __init__(
        self, headers: Mapping[str, str], max_body: int, verify: Any = True, keepalive: int = 16
    ) -> None:
        import httpx2

        self._http, self._max_body = httpx2, max_body
        self._client = httpx2.Client(
            trust_env=False,
            follow_redirects=False,
            verify=verify,
            headers={"accept-encoding": "identity", "user-agent": "edgeserve", **headers},
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=keepalive),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        request: EndpointRequest,
        deadline: float,
        cancelled: Event | None = None,
    ) -> EndpointReply:
        """Send one request and read the whole reply.

        Args:
            method: "GET" or "POST".
            url: Base URL of the endpoint, without a slash at the end.
            request: Path, headers and body.
            deadline: On the monotonic clock, seconds. A reply whose last piece is late may exceed
                it by one more read.
            cancelled: Once set, the reply is not read further.

        Raises:
            ClientError: connection, certificate, tls, interrupted, timeout, size or encoding.
        """
        left, http = max(0.001, deadline - time.monotonic()), self._http
        try:
            with self._client.stream(
                method,
                url + request.path,
                content=request.body,
                headers=dict(request.headers),
                timeout=left,
            ) as response:
                most = min(self._max_body, request.longest or self._max_body)
                return self._read(response, most, deadline, cancelled)
        except http.TimeoutException as error:
            raise ClientError("timeout", "no whole reply in time") from error
        except http.ConnectError as error:
            words = {"certificate": "certificate", "ssl": "tls"}
            said = str(error).lower()
            kind = next((kind for word, kind in words.items() if word in said), "connection")
            raise ClientError(kind, f"ConnectError: {error}"[:200]) from error
        except (http.HTTPError, http.StreamError, http.InvalidURL, OSError, ValueError) as error:
            raise ClientError("interrupted", f"{type(error).__name__}: {error}"[:200]) from error

    def _read(
        self, response: Any, most: int, deadline: float, cancelled: Event | None
    ) -> EndpointReply:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if headers.get("content-encoding", "identity") != "identity":
            raise ClientError("encoding", "a compressed reply")
        pieces, length = [], 0
        for piece in response.iter_raw():
            length += len(piece)
            if length > most:
                raise ClientError("size", f"a reply of more than {most} bytes")
            if time.monotonic() > deadline or (cancelled is not None and cancelled.is_set()):
                raise ClientError("timeout", "a part of a reply in time")
            pieces.append(piece)
        return EndpointReply(response.status_code, headers, b"".join(pieces))


def bearer_header(key: str) -> dict[str, str]:
    """The header that carries an API key; none for an empty key.

    Raises:
        ValueError: the key is not printable ASCII, which is all that a header holds.
    """
    if not key.isascii() or not key.isprintable():
        raise ValueError("an API key with other characters than printable ASCII")
    return {"authorization": f"Bearer {key}"} if key else {}


def infer_request(model: str, tensors: Sequence[Tensor], binary: bool) -> EndpointRequest:
    """An inference request.

    Args:
        model: Path of the model: ``/v2/models/NAME`` with or without a version.
        tensors: The inputs.
        binary: Send them as bytes behind the JSON, and ask for outputs in bytes.

    Raises:
        BadMessage: a tensor cannot be written as JSON (NaN, infinity).
        UnicodeDecodeError: likewise, bytes that are no UTF-8.
    """
    body, head = write_request(tensors, binary=binary)
    headers = {"content-type": _BYTES if binary else _JSON}
    if head is not None:
        headers[_HEAD_LENGTH] = str(head)
    return EndpointRequest(f"{model}/infer", headers, body)


def predict_request(model: str, raw: bytes) -> EndpointRequest:
    """A raw input for edgeserve's `predict`; ``model`` as in `infer_request`."""
    return EndpointRequest(f"{model}/predict", {"content-type": _BYTES}, raw)


def read_infer_reply(reply: EndpointReply) -> InferResponse:
    """Decode a reply to `infer_request`.

    Raises:
        BadMessage: it is no inference response, or lies about a size.
    """
    return read_response(reply.body, _head_length(reply))


def _head_length(reply: EndpointReply) -> int | None:
    length = reply.headers.get(_HEAD_LENGTH) or None
    if length is not None and not re.fullmatch("[0-9]{1,12}", length):
        raise BadMessage(f"the header {_HEAD_LENGTH} is no number")
    return int(length) if length else None


def json_part(reply: EndpointReply) -> bytes:
    """The JSON of a reply, without the tensors' bytes behind it.

    Raises:
        BadMessage: the header that says where it ends is no number.
    """
    return reply.body[: _head_length(reply)]


class OutputMismatch(BadMessage):
    """A response without an output of the signature.

    Attributes:
        wanted: The output, its dtype and perhaps its shape.
        got: Likewise, of the response.
    """

    def __init__(self, wanted: str, got: str) -> None:
        super().__init__(f"wanted {wanted}, got {got}")
        self.wanted, self.got = wanted, got


def named_outputs(
    response: InferResponse, signature: Signature, convert: bool = False
) -> dict[str, np.ndarray]:
    """The outputs of a response in the order of a signature; other outputs are left out.

    Args:
        response: A reply's.
        signature: Names, dtypes and ranks.
        convert: Accept another width of the same kind (float16 for float32) and convert it.

    Raises:
        OutputMismatch: an output is missing, or of another dtype or rank. The rank is never
            adapted: whether [4] is [1, 4] or [4, 1] would be a guess.
    """
    given = {tensor.name: tensor.array for tensor in response.outputs}
    found = {}
    for spec in signature.outputs:
        array = given.get(spec.name)
        wanted = f"output {spec.name!r} as {spec.dtype}"
        if array is None:
            raise OutputMismatch(wanted, "none")
        dtype = np.dtype(object if spec.dtype == "string" else spec.dtype)
        if array.dtype != dtype and not (convert and array.dtype.kind == dtype.kind):
            raise OutputMismatch(wanted, f"{array.dtype} {list(array.shape)}")
        if array.ndim != len(spec.shape):
            shape = f"{array.dtype} {list(array.shape)}"
            raise OutputMismatch(f"{wanted} {list(spec.shape)}", shape)
        found[spec.name] = array.astype(dtype, copy=False)
    return found


@dataclass(frozen=True)
class PredictReply:
    """A decision of edgeserve's `predict`.

    Attributes:
        model_id: Of the model that answered.
        decision: A record, or named arrays for the task without one.
        ran_on: Where it ran; None: the reply does not tell.
    """

    model_id: str
    decision: Record | dict[str, np.ndarray]
    ran_on: RanOn | None


class _PredictBody(msgspec.Struct, frozen=True):
    model_id: str
    answer: msgspec.Raw
    ran_on: RanOn | None = None


def read_predict_reply(reply: EndpointReply) -> PredictReply:
    """Decode a reply to `predict_request`.

    Raises:
        BadMessage: it holds no decision.
    """
    try:
        body = decode(reply.body, _PredictBody)
        return PredictReply(body.model_id, decode_decision(bytes(body.answer)), body.ran_on)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadMessage(f"no decision ({str(error)[:100]})") from error


def decode_decision(data: bytes) -> Record | dict[str, np.ndarray]:
    """A record in JSON, or named arrays for the task without one.

    Raises:
        ValueError: it is neither; msgspec's errors of JSON are ValueErrors too.
    """
    plain = msgspec.json.decode(data)
    if isinstance(plain, dict) and "record" not in plain:
        return {name: np.asarray(value) for name, value in plain.items()}
    return decode(data, AnyRecord)
