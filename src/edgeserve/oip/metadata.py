"""Which server and model an address names, and what the server declares about them.

Addresses and metadata are read strictly. A server that is busy is asked again after a pause.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from edgeserve.files import Closing
from edgeserve.oip.client import ClientError, EndpointReply, EndpointRequest, HttpClient

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]*")
_UNAUTHORIZED = (401, 403)
#: Statuses for the name of a model that the server does not have; Triton answers 400.
_UNKNOWN = (400, 404)
_BUSY = (429, 503)
#: How often a request is sent to a busy server, and the first pause, which doubles; seconds.
_ATTEMPTS, _PAUSE_S = 4, 0.2


@dataclass(frozen=True)
class ModelAddress:
    """An endpoint's URL, split.

    Attributes:
        server: Scheme, host, port and the prefix of ``/v2``.
        model: Its name; None: the only one there.
        version: None: the server's choice.
    """

    server: str
    model: str | None = None
    version: str | None = None


def parse_address(url: str) -> ModelAddress:
    """Split ``http(s)://host[:port][/prefix][/v2/models/NAME[/versions/VERSION]]``.

    Raises:
        ClientError: address.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is no number raises
    except ValueError:
        raise ClientError("address", "a URL that cannot be parsed") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ClientError("address", f"the scheme {parts.scheme!r}" if host else "no host")
    if "@" in parts.netloc:
        raise ClientError("address", "a password in the URL, which reports would show")
    if parts.query or parts.fragment:
        raise ClientError("address", "a query or fragment")
    prefix, found, rest = (parts.path.rstrip("/") + "/").rpartition("/v2/")
    if not found:
        prefix, rest = parts.path.rstrip("/"), ""
    words = [word for word in rest.split("/") if word]
    shapes: tuple[list[str], ...] = ([], ["models"], ["models", "versions"])
    if words[::2] not in shapes or len(words) % 2 or not all(map(_NAME.fullmatch, words[1::2])):
        raise ClientError("address", f"the path {parts.path}")
    return ModelAddress(f"{parts.scheme}://{parts.netloc}{prefix}", *words[1::2])


class EndpointSession(Closing):
    """Requests to one server, each with the same time limit. A context manager.

    Args:
        client: The connections; closed with this.
        url: Scheme, host, port and prefix.
        timeout: Seconds that one request may take.
    """

    def __init__(self, client: HttpClient, url: str, timeout: float) -> None:
        self.url, self.timeout, self._client = url, timeout, client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str) -> EndpointReply:
        """Fetch a resource; errors as `HttpClient.send`."""
        return self._send("GET", EndpointRequest(path))

    def post(self, request: EndpointRequest) -> EndpointReply:
        """Send a request; errors as `HttpClient.send`."""
        return self._send("POST", request)

    def _send(self, method: str, request: EndpointRequest) -> EndpointReply:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * 2 ** (attempt - 1))
            deadline = time.monotonic() + self.timeout
            reply = self._client.send(method, self.url, request, deadline)
            if reply.status not in _BUSY:
                break
        return reply


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or output as the endpoint declares it; a size of -1 is dynamic."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class _ModelMetadata(msgspec.Struct, frozen=True):
    name: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    versions: tuple[str, ...] | None = None
    platform: str = ""
    parameters: dict[str, Any] | None = None


class _ServerMetadata(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    extensions: tuple[str, ...] = ()


class _IndexEntry(msgspec.Struct, frozen=True):
    name: str


class _ErrorBody(msgspec.Struct, frozen=True):
    error: Any = ""
    detail: Any = ""


@dataclass(frozen=True)
class EndpointMetadata:
    """The metadata of one model and of its server.

    Attributes:
        server: Name and version of the software; may be empty.
        binary: The server accepts binary tensor data.
        path: Of the model: ``/v2/models/NAME`` and, where one was named, its version.
        model: The model's name.
        version: The model's version; may be empty.
        model_id: edgeserve's identity of a model; empty where the server is another.
        medium: The raw input of `predict` ("image", "audio", "text"); empty: no `predict`.
        inputs: As declared.
        outputs: As declared.
    """

    server: str
    binary: bool
    path: str
    model: str
    version: str
    model_id: str
    medium: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]

    @property
    def description(self) -> str:
        """Which model answers, for a report."""
        version = f" version {self.version}" if self.version else ""
        known = f", model_id {self.model_id}" if self.model_id else ", which declares no model_id"
        return f"the endpoint's model is {self.model!r}{version} ({self.server}){known}"

    @property
    def cache_key(self) -> bytes:
        """Changes when another model answers, as far as the endpoint declares it."""
        return msgspec.json.encode(
            [self.path, self.model, self.version, self.model_id, self.inputs, self.outputs]
        )


def fetch_metadata(session: EndpointSession, address: ModelAddress) -> EndpointMetadata:
    """Fetch the metadata of a server and of one of its models.

    Raises:
        ClientError: protocol, model or refused; as `HttpClient.send`.
    """
    server = _decode(session.get("/v2"), _ServerMetadata, "its metadata at /v2")
    name = address.model or _only_model(session)
    path = f"/v2/models/{quote(name)}"
    path += f"/versions/{quote(address.version)}" if address.version else ""
    reply = session.get(path)
    if reply.status in _UNKNOWN:
        wanted = f"a model {name!r}" + (f" version {address.version}" if address.version else "")
        raise ClientError("model", error_text(reply) or "no such model", wanted)
    model = _decode(reply, _ModelMetadata, f"metadata of {name!r}")
    parameters = model.parameters or {}
    return EndpointMetadata(
        server=f"{server.name} {server.version}".strip(),
        binary="binary_tensor_data" in server.extensions,
        path=path,
        model=model.name,
        version=address.version or (model.versions or ("",))[-1],
        model_id=_text_parameter(parameters, "model_id"),
        medium=_text_parameter(parameters, "medium") if server.name == "edgeserve" else "",
        inputs=model.inputs,
        outputs=model.outputs,
    )


def error_text(reply: EndpointReply) -> str:
    """The error message of a reply, in one line; may be empty."""
    try:
        body = msgspec.json.decode(reply.body, type=_ErrorBody)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return " ".join(str(body.error or body.detail or "").split())[:200]


def _decode(reply: EndpointReply, kind: type[T], wanted: str) -> T:
    status = f"status {reply.status} {error_text(reply)}".strip()
    if reply.status in _UNAUTHORIZED:
        raise ClientError("refused", status, wanted)
    wanted += ", as the protocol defines it"
    if reply.status != 200:
        raise ClientError("protocol", status, wanted)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ClientError("protocol", f"something else ({str(error)[:100]})", wanted) from error


def _only_model(session: EndpointSession) -> str:
    """The one model of a server, from its index."""
    headers = {"content-type": "application/json"}
    reply = session.post(EndpointRequest("/v2/repository/index", headers, b"{}"))
    names: set[str] = set()
    if reply.status == 200:
        try:
            rows = msgspec.json.decode(reply.body, type=tuple[_IndexEntry, ...])
            names = {row.name for row in rows}
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass
    if len(names) != 1:
        listed = ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
        got = f"several: {listed}" if names else "no list of models"
        raise ClientError("model", got, "the name of a model")
    return names.pop()


def _text_parameter(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name)
    return value[:200] if isinstance(value, str) else ""
