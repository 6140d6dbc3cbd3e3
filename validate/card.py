"""Where an endpoint stands, and what it says of a model: the protocol's metadata, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from edgeserve.errors import ValidateError
from edgeserve.validate.wire import KEY, Reply, Wire

__all__ = ["Address", "Card", "Port", "address_of", "refusal", "take_card"]

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]*")
_NOT_ALLOWED = (401, 403)
#: What servers answer to the name of a model that they do not have; Triton says 400.
_UNKNOWN = (400, 404)


@dataclass(frozen=True)
class Address:
    """A reference's URL taken apart.

    Attributes:
        server: Scheme, host, port and what stands before ``/v2``.
        model: Its name; None: the only one there.
        version: None: the server's choice.
    """

    server: str
    model: str | None = None
    version: str | None = None


class Port(msgspec.Struct, frozen=True):
    """An input or output as the endpoint declares it; a size of -1 is free."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class _Model(msgspec.Struct, frozen=True):
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    versions: tuple[str, ...] | None = None
    platform: str = ""
    parameters: dict[str, Any] | None = None


class _Server(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    extensions: tuple[str, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    name: str


class _Told(msgspec.Struct, frozen=True):
    error: Any = ""
    detail: Any = ""


@dataclass(frozen=True)
class Card:
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
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

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


def address_of(reference: str) -> Address:
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
        raise _no_address(safe, f"a password in the address, which reports show; set {KEY}")
    if parts.query or parts.fragment:
        raise _no_address(reference, "a query or fragment")
    before, found, after = (parts.path.rstrip("/") + "/").rpartition("/v2/")
    if not found:
        before, after = parts.path.rstrip("/"), ""
    words = [word for word in after.split("/") if word]
    shapes: tuple[list[str], ...] = ([], ["models"], ["models", "versions"])
    if words[::2] not in shapes or len(words) % 2 or not all(map(_NAME.fullmatch, words[1::2])):
        raise _no_address(reference, f"the path {parts.path}")
    return Address(f"{parts.scheme}://{parts.netloc}{before}", *words[1::2])


def take_card(wire: Wire, address: Address) -> Card:
    """Ask an endpoint about itself and a model.

    Raises:
        ValidateError: EDGE-VALIDATE-042 it does not speak the protocol, -043 it has no such model,
            or several and none was named, -045 it refuses to tell.
    """
    server = _read(wire, wire.get("/v2"), _Server, "its metadata at /v2")
    name = address.model or _only(wire)
    path = f"/v2/models/{quote(name)}"
    path += f"/versions/{quote(address.version)}" if address.version else ""
    reply = wire.get(path)
    if reply.status in _UNKNOWN:
        called = f"{name!r} version {address.version}" if address.version else repr(name)
        raise _no_model(wire, f"a model {called}", refusal(reply) or "no such model")
    model = _read(wire, reply, _Model, f"metadata of {name!r}")
    told = model.parameters or {}
    ours = server.name == "edgeserve"
    return Card(
        server=f"{server.name} {server.version}".strip(),
        binary="binary_tensor_data" in server.extensions,
        path=path,
        model=model.name,
        version=address.version or (model.versions or ("",))[-1],
        model_id=_word(told, "model_id"),
        medium=_word(told, "medium") if ours else "",
        inputs=model.inputs,
        outputs=model.outputs,
    )


def refusal(reply: Reply) -> str:
    """What an endpoint gives as its reason, in one line; may be empty."""
    try:
        told = msgspec.json.decode(reply.body, type=_Told)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return " ".join(str(told.error or told.detail or "").split())[:200]


def _read(wire: Wire, reply: Reply, kind: type[T], what: str) -> T:
    if reply.status in _NOT_ALLOWED:
        raise ValidateError(
            "EDGE-VALIDATE-045",
            f"reference {wire.url}",
            wanted=what,
            got=f"status {reply.status} {refusal(reply)}".strip(),
            hint=f"set {KEY} to a key that the endpoint takes as a Bearer token",
        )
    try:
        if reply.status == 200:
            return msgspec.json.decode(reply.body, type=kind)
        got = f"status {reply.status} {refusal(reply)}".strip()
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


def _only(wire: Wire) -> str:
    """The one model of a server, by its index."""
    reply = wire.post("/v2/repository/index", b"{}", {"content-type": "application/json"})
    try:
        rows = msgspec.json.decode(reply.body, type=tuple[_Row, ...]) if reply.status == 200 else ()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        rows = ()
    names = sorted({row.name for row in rows})
    if len(names) != 1:
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise _no_model(
            wire, "the name of a model", f"several: {listed}" if names else "no list of models"
        )
    return names[0]


def _word(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    return value[:200] if isinstance(value, str) else ""


def _no_model(wire: Wire, wanted: str, got: str) -> ValidateError:
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
