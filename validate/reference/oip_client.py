"""HTTP client of the Open Inference Protocol: requests, and an endpoint's metadata.

Metadata is read strictly. This is the gate's only door to a network: requests go where the
user's URL says and nowhere else, with no proxies, passwords or redirects from the outside. None
is waited for without end, however slowly an answer drips.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from edgeserve.errors import ValidateError
from edgeserve.installation import install_command

__all__ = [
    "KEY_VARIABLE",
    "EndpointClient",
    "EndpointMetadata",
    "EndpointResponse",
    "ModelAddress",
    "TensorMetadata",
    "error_text",
    "fetch_metadata",
    "parse_address",
]


#: Environment variable with a key for the endpoint; it stands in no file.
KEY_VARIABLE = "EDGESERVE_REFERENCE_KEY"
#: Longest answer that is read.
_MAX_BODY = 1 << 30
#: Times a request is sent while the endpoint says that it is busy, and the first pause, seconds.
_TRIES, _PAUSE = 4, 0.2
_BUSY = (429, 503)


@dataclass(frozen=True)
class EndpointResponse:
    """A response: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class EndpointClient:
    """Connections to one server. A context manager; threads may share it.

    Args:
        url: Scheme, host, port and what stands before ``/v2``.
        timeout: Seconds that one request may take. Looked at whenever a piece arrives: one whose
            last piece is late may take as long again.

    Raises:
        ValidateError: EDGE-VALIDATE-046 httpx2 is missing, -048 a key that no header can hold.
    """

    def __init__(self, url: str, timeout: float) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise ValidateError(
                "EDGE-VALIDATE-046",
                f"reference {url}",
                wanted="the package httpx2",
                got="it is not installed",
                hint=install_command("fallback"),
            ) from error
        self.url, self._timeout, self._http = url, timeout, httpx2
        self._client = httpx2.Client(
            trust_env=False,
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "edgeserve"} | _auth_header(url),
        )

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str) -> EndpointResponse:
        """Ask for a resource; errors as `post`."""
        return self._patiently(lambda: self._once("GET", path, b"", {}))

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> EndpointResponse:
        """Send a body; an endpoint that is busy is asked again a little later.

        Raises:
            ValidateError: EDGE-VALIDATE-040 it cannot be reached, -041 it takes too long.
        """
        return self._patiently(lambda: self._once("POST", path, body, headers))

    def _patiently(self, send: Callable[[], EndpointResponse]) -> EndpointResponse:
        for turn in range(_TRIES - 1):
            reply = send()
            if reply.status not in _BUSY:
                return reply
            time.sleep(_PAUSE * 2**turn)
        return send()

    def _once(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> EndpointResponse:
        end = time.monotonic() + self._timeout
        http = self._http
        try:
            with self._client.stream(
                method, self.url + path, content=body, headers=dict(headers), timeout=self._timeout
            ) as response:
                return self._read(response, end)
        except http.TimeoutException as error:
            raise self._slow() from error
        except (http.HTTPError, http.StreamError, http.InvalidURL, OSError, ValueError) as error:
            raise ValidateError(
                "EDGE-VALIDATE-040",
                f"reference {self.url}",
                wanted="an answer over HTTP",
                got=f"{type(error).__name__}: {error}"[:200],
                hint=f"see that it is up: curl {self.url}/v2",
            ) from error

    def _read(self, response: Any, end: float) -> EndpointResponse:
        pieces, length = [], 0
        for piece in response.iter_raw():
            length += len(piece)
            if length > _MAX_BODY:
                raise ValueError("an answer of more than 1 GiB")
            if time.monotonic() > end:
                raise self._slow()
            pieces.append(piece)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return EndpointResponse(response.status_code, headers, b"".join(pieces))

    def _slow(self) -> ValidateError:
        return ValidateError(
            "EDGE-VALIDATE-041",
            f"reference {self.url}",
            wanted=f"an answer within {self._timeout:g} seconds, each time it is asked",
            got="none, or only a part of one",
            hint="see what its log says; name an endpoint that has the model loaded",
        )


def _auth_header(url: str) -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        return {}
    if not key.isascii() or not key.isprintable():
        raise ValidateError(
            "EDGE-VALIDATE-048",
            f"reference {url}",
            wanted=f"a key of printable ASCII in {KEY_VARIABLE}",
            got="one with other characters",
            hint="set the variable to the key alone",
        )
    return {"authorization": f"Bearer {key}"}


T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]*")
_NOT_ALLOWED = (401, 403)
#: What servers answer to the name of a model that they do not have; Triton says 400.
_UNKNOWN = (400, 404)


@dataclass(frozen=True)
class ModelAddress:
    """A reference's URL taken apart.

    Attributes:
        server: Scheme, host, port and what stands before ``/v2``.
        model: Its name; None: the only one there.
        version: None: the server's choice.
    """

    server: str
    model: str | None = None
    version: str | None = None


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or output as the endpoint declares it; a size of -1 is free."""

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
    """What an endpoint says of the model that stands for the server.

    Attributes:
        server: Name and version of the software; may be empty.
        binary: Tensors may be sent as bytes.
        path: Of the model: ``/v2/models/NAME`` and, where one was named, its version.
        model, version: Names; the version may be empty.
        model_id: edgeserve's identity of a model; empty where the server is another.
        medium: What raw inputs `predict` takes ("image", "audio", "text"); empty: it has none.
        inputs, outputs: As declared.
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
    def said(self) -> str:
        """Who answers, for the report."""
        version = f" version {self.version}" if self.version else ""
        known = f", model_id {self.model_id}" if self.model_id else ", which tells no model_id"
        return f"the endpoint's model is {self.model!r}{version} ({self.server}){known}"

    @property
    def key(self) -> bytes:
        """What changes when another model answers, as far as the endpoint tells."""
        return msgspec.json.encode(
            [self.path, self.model, self.version, self.model_id, self.inputs, self.outputs]
        )


def parse_address(reference: str) -> ModelAddress:
    """Take a reference's URL apart.

    Raises:
        ValidateError: EDGE-VALIDATE-002, it is no address of such an endpoint.
    """
    try:
        parts = urlsplit(reference)
        host, _ = parts.hostname, parts.port  # a port that is no number raises
    except ValueError:
        raise _no_address(reference, "an address that cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address(reference, f"the scheme {parts.scheme!r}" if host else "no host")
    if "@" in parts.netloc:
        safe = f"{parts.scheme}://...@{parts.netloc.rpartition('@')[2]}"
        raise _no_address(
            safe, f"a password in the address, which reports show; set {KEY_VARIABLE}"
        )
    if parts.query or parts.fragment:
        raise _no_address(reference, "a query or fragment")
    before, found, after = (parts.path.rstrip("/") + "/").rpartition("/v2/")
    if not found:
        before, after = parts.path.rstrip("/"), ""
    words = [word for word in after.split("/") if word]
    shapes: tuple[list[str], ...] = ([], ["models"], ["models", "versions"])
    if words[::2] not in shapes or len(words) % 2 or not all(map(_NAME.fullmatch, words[1::2])):
        raise _no_address(reference, f"the path {parts.path}")
    return ModelAddress(f"{parts.scheme}://{parts.netloc}{before}", *words[1::2])


def fetch_metadata(wire: EndpointClient, address: ModelAddress) -> EndpointMetadata:
    """Ask an endpoint about itself and a model.

    Raises:
        ValidateError: EDGE-VALIDATE-042 it does not speak the protocol, -043 it has no such model,
            or several and none was named, -045 it refuses to tell.
    """
    server = _read(wire, wire.get("/v2"), _ServerMetadata, "its metadata at /v2")
    name = address.model or _only_model(wire)
    path = f"/v2/models/{quote(name)}"
    path += f"/versions/{quote(address.version)}" if address.version else ""
    reply = wire.get(path)
    if reply.status in _UNKNOWN:
        called = f"{name!r} version {address.version}" if address.version else repr(name)
        raise _no_model(wire, f"a model {called}", error_text(reply) or "no such model")
    model = _read(wire, reply, _ModelMetadata, f"metadata of {name!r}")
    told = model.parameters or {}
    ours = server.name == "edgeserve"
    return EndpointMetadata(
        server=f"{server.name} {server.version}".strip(),
        binary="binary_tensor_data" in server.extensions,
        path=path,
        model=model.name,
        version=address.version or (model.versions or ("",))[-1],
        model_id=_text_parameter(told, "model_id"),
        medium=_text_parameter(told, "medium") if ours else "",
        inputs=model.inputs,
        outputs=model.outputs,
    )


def error_text(reply: EndpointResponse) -> str:
    """What an endpoint gives as its reason, in one line; may be empty."""
    try:
        told = msgspec.json.decode(reply.body, type=_ErrorBody)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return " ".join(str(told.error or told.detail or "").split())[:200]


def _read(wire: EndpointClient, reply: EndpointResponse, kind: type[T], what: str) -> T:
    if reply.status in _NOT_ALLOWED:
        raise ValidateError(
            "EDGE-VALIDATE-045",
            f"reference {wire.url}",
            wanted=what,
            got=f"status {reply.status} {error_text(reply)}".strip(),
            hint=f"set {KEY_VARIABLE} to a key that the endpoint takes as a Bearer token",
        )
    try:
        if reply.status == 200:
            return msgspec.json.decode(reply.body, type=kind)
        got = f"status {reply.status} {error_text(reply)}".strip()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        got = f"something else ({str(error)[:100]})"
    raise ValidateError(
        "EDGE-VALIDATE-042",
        f"reference {wire.url}",
        wanted=f"{what}, as the protocol has it",
        got=got,
        hint="name an endpoint of the Open Inference Protocol v2, or write a function"
        " that asks your server: --reference module:callable",
    )


def _only_model(wire: EndpointClient) -> str:
    """The one model of a server, by its index."""
    reply = wire.post("/v2/repository/index", b"{}", {"content-type": "application/json"})
    try:
        rows = (
            msgspec.json.decode(reply.body, type=tuple[_IndexEntry, ...])
            if reply.status == 200
            else ()
        )
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        rows = ()
    names = sorted({row.name for row in rows})
    if len(names) != 1:
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise _no_model(
            wire, "the name of a model", f"several: {listed}" if names else "no list of models"
        )
    return names[0]


def _text_parameter(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    return value[:200] if isinstance(value, str) else ""


def _no_model(wire: EndpointClient, wanted: str, got: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-043",
        f"reference {wire.url}",
        wanted=wanted,
        got=got,
        hint=f"name one that is loaded there: --reference {wire.url}/v2/models/NAME",
    )


def _no_address(reference: str, got: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-002",
        f"reference {reference}",
        wanted="http(s)://host[:port][/v2/models/NAME[/versions/VERSION]]",
        got=got,
        hint="give the REST address of the endpoint, or write a function that asks it",
    )
