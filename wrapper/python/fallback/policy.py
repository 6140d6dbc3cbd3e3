"""`Fallback`: the contract that an app declares about asking an endpoint, each field checked.

Types are as strict as a TOML file's, and values are checked. `FallbackRanOn` tells where an answer
came from when a contract was in force.
"""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from edgeserve.bundle.rules import PRIVACY_FIELD, check_privacy
from edgeserve.environment import is_loopback
from edgeserve.errors import FallbackError
from edgeserve.types.base import Value
from edgeserve.types.records import RanOn

#: When an endpoint may be asked. "always": first, and the device only when no endpoint answers.
TRIGGERS = (
    "missing",
    "proof-failed",
    "device-error",
    "out-of-memory",
    "busy",
    "low-confidence",
    "always",
)
#: Either word alone in ``when``: no endpoint is ever asked.
LOCAL_ONLY = ("local-only", "never-cloud")
#: Values of ``send`` by protocol.
_SENDS = {
    "oip": ("tensor", "raw"),
    "tfserving": ("tensor",),
    "torchserve": ("tensor", "raw"),
    "mlflow": ("tensor",),
}
#: Environment variable that, set to anything but 0, forbids endpoints for a whole device.
_VARIABLE = "EDGESERVE_LOCAL_ONLY"


class Fallback(Value, frozen=True):
    """A contract with one or more endpoints that serve the same bundle.

    Attributes:
        url: Endpoints, best first: ``https://host[:port][/prefix]``.
        when: Triggers (`TRIGGERS`), or "local-only".
        deadline_ms: From the call of `predict` to its answer, from the device or an endpoint.
        send: The data that leaves: "tensor", the model's inputs, made on the device (for any
            server of the protocol), or "raw", the photo, text or sound itself (for edgeserve's
            `predict`).
        threshold: "low-confidence" is a decision whose margin is below this; see `pick_threshold`.
        model: The model's name there; empty: the bundle's own.
        attempts: Requests for one call at most, retries and hedges included: 1 or 2.
        budget: Share of calls that may cost a second request.
        hedge: Send a second request when a reply takes longer than nearly all do.
        at_once: Calls to endpoints at a time; a further call is rejected.
        key_env: Environment variable with the API key; no file stores the key itself.
        other_model: An answer of another ``model_id``: "report" it, or "refuse" it.
        plain_http: Allow ``http://`` to another machine: the data can be read on the way.
        ca: PEM file of the certificate authorities to trust; empty: the system's.
        answer_mb: Longest reply that is read.
        binary: Send and receive tensors as bytes; False for a server that supports JSON only.
        protocol: "oip", the Open Inference Protocol; or the REST of "tfserving", "torchserve" (its
            ``json`` envelope) or "mlflow".
    """

    url: str | tuple[str, ...]
    when: str | tuple[str, ...] = ("missing", "proof-failed", "device-error", "out-of-memory")
    deadline_ms: float = 1000.0
    send: Literal["tensor", "raw"] = "tensor"
    threshold: float = 0.0
    model: str = ""
    attempts: int = 2
    budget: float = 0.1
    hedge: bool = False
    at_once: int = 4
    key_env: str = ""
    other_model: Literal["report", "refuse"] = "report"
    plain_http: bool = False
    ca: str = ""
    answer_mb: int = 64
    binary: bool = True
    protocol: Literal["oip", "tfserving", "torchserve", "mlflow"] = "oip"

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        for name, value in check_types(given, _field_types()).items():
            msgspec.structs.force_setattr(self, name, value)
        for trigger in self.triggers:
            if trigger not in (*TRIGGERS, *LOCAL_ONLY):
                words = f"words of {', '.join((*TRIGGERS, *LOCAL_ONLY))}"
                raise field_error("when", words, repr(trigger))
        if set(self.triggers) & set(LOCAL_ONLY) and len(self.triggers) > 1:
            raise field_error("when", f"{self.triggers[0]} alone", ", ".join(self.triggers))
        low, most = ("low-confidence" in self.triggers), 1 + 1e-6  # margins are 0 to 1
        if not (0 < self.threshold <= most if low else self.threshold == 0):
            wanted = "a number above 0, at most 1, with low-confidence, and only with it"
            raise field_error("threshold", wanted, f"{self.threshold}")
        if self.send not in _SENDS[self.protocol]:
            wanted = f"tensor: {self.protocol} takes no raw inputs"
            raise field_error("send", wanted, repr(self.send))
        if not 0 < self.deadline_ms <= 3_600_000:
            raise field_error("deadline_ms", "above 0 and at most an hour", f"{self.deadline_ms}")
        if self.attempts not in (1, 2) or not 0 <= self.budget <= 1:
            got = f"{self.attempts} and {self.budget}"
            raise field_error("attempts and budget", "1 or 2, and 0 to 1", got)
        if self.at_once < 1 or self.answer_mb < 1:
            got = f"{self.at_once} and {self.answer_mb}"
            raise field_error("at_once and answer_mb", "1 or more", got)
        if self.model and not _MODEL.fullmatch(self.model):  # it would lead to another path
            wanted = "a model's name: letters, digits and ._~+@:=-"
            raise field_error("model", wanted, repr(self.model[:80]))
        if not self.urls:
            raise field_error("url", "one endpoint or more", "none")
        for url in self.urls:
            _check_url(url, self.plain_http, self.protocol)

    @property
    def urls(self) -> tuple[str, ...]:
        """The endpoints, without a slash at the end."""
        given = (self.url,) if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in given)

    @property
    def triggers(self) -> tuple[str, ...]:
        """The words of `when`."""
        return (self.when,) if isinstance(self.when, str) else self.when

    def declaration(self) -> dict[str, Any]:
        """Which data may leave the device, to whom and when: for a privacy page, or a review."""
        return {
            "to": list(self.urls),
            "when": list(self.triggers),
            "what": {
                "tensor": "the model's input tensors, made on the device",
                "raw": "the raw input itself: the photo, text or sound",
            }[self.send],
            "with": ["the model's name", "a random request id", "the time left"]
            + (["an API key"] if self.key_env else []),
        }


@functools.cache
def _field_types() -> dict[str, Any]:
    """The type of each field."""
    return get_type_hints(Fallback)


def parse_policy(given: object) -> Fallback:
    """The contract given to `Wrapper`: a `Fallback`, an endpoint's URL, or a TOML file's path.

    Raises:
        FallbackError: EDGE-FALLBACK-001 a field is wrong, -002 the file is.
    """
    if isinstance(given, Fallback):
        return given
    if isinstance(given, str) and "://" in given:
        return Fallback(given)
    if isinstance(given, Path) or (isinstance(given, str) and given.strip()):
        return _read_toml(Path(given))
    got = "an empty text" if isinstance(given, str) else type(given).__name__
    raise field_error("fallback", "a Fallback, a URL or the path of a TOML file", got)


def local_only(contract: Fallback, x: dict[str, Any]) -> str:
    """Who forbids that data leaves this device; empty: nobody.

    Args:
        contract: The app's.
        x: The manifest's field ``x``, where the bundle's author may have forbidden it.

    Raises:
        BundleError: EDGE-BUNDLE-044, a privacy field there is not understood.
    """
    check_privacy(x)
    if set(contract.triggers) & set(LOCAL_ONLY):
        return "the contract"
    if os.environ.get(_VARIABLE, "0") not in ("", "0"):
        return f"the environment ({_VARIABLE})"
    return "the bundle" if x.get(PRIVACY_FIELD) else ""


def _read_toml(path: Path) -> Fallback:
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Fallback)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        if isinstance(error.__cause__, FallbackError):
            raise error.__cause__ from None
        raise FallbackError(
            "EDGE-FALLBACK-002",
            f"contract {path}",
            wanted="TOML with the fields of a Fallback",
            got=getattr(error, "strerror", None) or str(error),
            hint="docs/guide/fallback.md shows a contract with every field",
        ) from error


#: A model's name at a server, with or without the path of a version; no path leads elsewhere.
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*(/[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*)*")
_TYPE_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "bool": "True or False",
    "str": "text",
    "array": "a list of texts",
}
#: First part of each protocol's own paths.
_PATH_PREFIXES = {
    "oip": "v2",
    "tfserving": "v1",
    "torchserve": "predictions",
    "mlflow": "invocations",
}


def check_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values, converted to their fields' types: no text for a number, no 1 for a bool, no NaN.

    Raises:
        FallbackError: EDGE-FALLBACK-001, one is of another type.
    """
    converted = {}
    for name, value in values.items():
        try:
            converted[name] = msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise field_error(name, _expected(error, kinds[name]), repr(value)[:80]) from None
        if isinstance(converted[name], float) and not math.isfinite(converted[name]):
            raise field_error(name, "a finite number", repr(value))
    return converted


def _expected(error: Exception, kind: Any) -> str:
    if words := [str(word) for word in get_args(kind) if isinstance(word, str)]:
        return " or ".join(words)
    types = str(error).partition("Expected `")[2].partition("`")[0]
    return " or ".join(_TYPE_WORDS.get(word, word) for word in types.split(" | ")) or str(error)


def _check_url(url: str, plain_http: bool, protocol: str) -> None:
    """Refuse a URL that is no endpoint's address, or whose traffic others could read."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise field_error("url", "https://host[:port]", repr(url)) from error
    more = parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or more:
        raise field_error("url", "https://host[:port][/prefix]", repr(url))
    if parts.path.split("/")[1:2] == [_PATH_PREFIXES[protocol]]:
        wanted = f"the server's address alone; /{_PATH_PREFIXES[protocol]}/... is added to it"
        hint = f"write {parts.scheme}://{parts.netloc}, and the model's name there as model=..."
        raise field_error("url", wanted, repr(url), hint)
    if parts.scheme == "http" and not plain_http and not is_loopback(host):
        where = f"endpoint {url}"
        wanted = "https to another machine"
        hint = "serve it with TLS, or set plain_http=True on a network that you trust"
        raise FallbackError("EDGE-FALLBACK-003", where, wanted=wanted, got="http", hint=hint)


def field_error(
    field: str,
    wanted: str,
    got: str,
    hint: str = "docs/guide/fallback.md explains each field of the contract",
) -> FallbackError:
    """The coded error for a field that cannot be used."""
    return FallbackError("EDGE-FALLBACK-001", f"field {field}", wanted=wanted, got=got, hint=hint)


#: One type for the device and endpoints, so that a stored result is read back unchanged.
FallbackRanOn = RanOn


def with_policy_fields(ran_on: RanOn, note: str = "", **fields: Any) -> FallbackRanOn:
    """``ran_on`` with the contract's fields, and ``note`` appended to its own."""
    notes = "; ".join(filter(None, (ran_on.note, note)))
    return msgspec.structs.replace(ran_on, note=notes, **fields)
