"""Fields of a contract, held to their types as a TOML file's are, and to what they may say."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from edgeserve.errors import FallbackError

__all__ = ["check_model", "check_url", "is_this_machine", "typed", "wrong"]

#: A model's name at a server, perhaps with a version's path behind it; nothing leads elsewhere.
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*(/[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*)*")
_SPOKEN = {
    "float": "a number",
    "int": "a whole number",
    "bool": "True or False",
    "str": "text",
    "array": "a list of texts",
}
#: What each protocol itself puts behind the address.
_ADDED = {"oip": "v2", "tfserving": "v1", "torchserve": "predictions", "mlflow": "invocations"}


def typed(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each of its field's type: no text for a number, no 1 for a bool, no NaN.

    Raises:
        FallbackError: EDGE-FALLBACK-001, one is of another type.
    """
    found = {}
    for name, value in values.items():
        try:
            found[name] = msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise wrong(name, _wanted(error, kinds[name]), repr(value)[:80]) from None
        if isinstance(found[name], float) and not math.isfinite(found[name]):
            raise wrong(name, "a finite number", repr(value))
    return found


def _wanted(error: Exception, kind: Any) -> str:
    if words := [str(word) for word in get_args(kind) if isinstance(word, str)]:
        return " or ".join(words)
    said = str(error).partition("Expected `")[2].partition("`")[0]
    return " or ".join(_SPOKEN.get(word, word) for word in said.split(" | ")) or str(error)


def check_model(name: str) -> None:
    """Refuse a model's name that would lead to another path of the endpoint."""
    if name and not _MODEL.fullmatch(name):
        raise wrong("model", "a model's name: letters, digits and ._~+@:=-", repr(name[:80]))


def check_url(url: str, plain_http: bool, protocol: str) -> None:
    """Refuse what is no address of an endpoint, or one that could be read on the way."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise wrong("url", "https://host[:port]", repr(url)) from error
    if (
        parts.scheme not in ("http", "https")
        or not host
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise wrong("url", "https://host[:port][/prefix]", repr(url))
    if parts.path.split("/")[1:2] == [_ADDED[protocol]]:
        raise wrong(
            "url",
            f"the server's address alone: /{_ADDED[protocol]}/... is added here",
            repr(url),
            hint=f"write {parts.scheme}://{parts.netloc}, and the model's name there as model=...",
        )
    if parts.scheme == "http" and not plain_http and not is_this_machine(host):
        raise FallbackError(
            "EDGE-FALLBACK-003",
            f"endpoint {url}",
            wanted="https to another machine",
            got="http",
            hint="serve it with TLS, or say plain_http=True where the network itself is yours",
        )


def is_this_machine(host: str) -> bool:
    """Whether only processes of this machine can answer there, or ask."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def wrong(
    field: str,
    wanted: str,
    got: str,
    hint: str = "docs/fallback.md explains each field of the contract",
) -> FallbackError:
    """The coded error for a field that cannot be used."""
    return FallbackError("EDGE-FALLBACK-001", f"field {field}", wanted=wanted, got=got, hint=hint)
