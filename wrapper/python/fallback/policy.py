"""`Fallback`: the policy that an app declares about asking an endpoint, each field checked.

Fields are held to their types as a TOML file's are, and to what they may say. `FallbackRanOn` is
where an answer came from when such a policy was in force.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from edgeserve.errors import FallbackError
from edgeserve.types.base import Value
from edgeserve.types.records import RanOn

__all__ = [
    "LOCAL_ONLY",
    "TRIGGERS",
    "Fallback",
    "FallbackRanOn",
    "check_model_name",
    "check_types",
    "check_url",
    "field_error",
    "is_loopback",
    "local_only",
    "parse_policy",
    "with_policy_fields",
]


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
#: Either word alone in ``when``: no endpoint is asked, whatever else is said anywhere.
LOCAL_ONLY = ("local-only", "never-cloud")
#: What servers of each protocol take.
_SENDS = {
    "oip": ("tensor", "raw"),
    "tfserving": ("tensor",),
    "torchserve": ("tensor", "raw"),
    "mlflow": ("tensor",),
}
#: This environment variable, set to anything but 0, says the same for a whole device.
_VARIABLE = "EDGESERVE_LOCAL_ONLY"


class Fallback(Value, frozen=True):
    """A contract with one or more endpoints that serve the same bundle.

    Attributes:
        url: Where they are, best first: ``https://host[:port][/prefix]``.
        when: Triggers (`TRIGGERS`), or "local-only".
        deadline_ms: From the call of `predict` to its answer, whoever gives it.
        send: What leaves: "tensor", the model's inputs, made here (any server of the protocol takes
            them), or "raw", the photo, text or sound itself (edgeserve's `predict`).
        threshold: "low-confidence" is a decision whose margin is below this; see `pick_threshold`.
        model: The model's name there; empty: the bundle's own.
        attempts: Requests for one call at most, retries and hedges counted: 1 or 2.
        budget: Share of calls that may cost a second request.
        hedge: Ask a second time when an answer takes longer than nearly all do.
        at_once: Calls to endpoints at a time; one more is not made.
        key_env: Environment variable that holds the API key; the key itself stands in no file.
        other_model: What an answer of another ``model_id`` is: "report" it, or "refuse" it.
        plain_http: Allow ``http://`` to another machine: whatever leaves can be read on the way.
        ca: PEM file of the authorities to trust; empty: the system's.
        answer_mb: Longest answer that is read.
        binary: Tensors go and come as bytes; False for a server that takes JSON only.
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
                raise field_error(
                    "when", f"words of {', '.join((*TRIGGERS, *LOCAL_ONLY))}", repr(trigger)
                )
        if set(self.triggers) & set(LOCAL_ONLY) and len(self.triggers) > 1:
            raise field_error("when", f"{self.triggers[0]} alone", ", ".join(self.triggers))
        low, most = ("low-confidence" in self.triggers), 1 + 1e-6  # margins are 0 to 1
        if not (0 < self.threshold <= most if low else self.threshold == 0):
            raise field_error(
                "threshold",
                "a number above 0, at most 1, with low-confidence, and only with it",
                f"{self.threshold}",
            )
        if self.send not in ("tensor", "raw"):
            raise field_error("send", "tensor or raw", repr(self.send))
        if self.protocol not in _SENDS:
            raise field_error("protocol", " or ".join(_SENDS), repr(self.protocol))
        if self.send not in _SENDS[self.protocol]:
            raise field_error(
                "send", f"tensor: {self.protocol} takes no raw inputs", repr(self.send)
            )
        if not 0 < self.deadline_ms <= 3_600_000:
            raise field_error("deadline_ms", "above 0 and at most an hour", f"{self.deadline_ms}")
        if self.attempts not in (1, 2) or not 0 <= self.budget <= 1:
            raise field_error(
                "attempts and budget", "1 or 2, and 0 to 1", f"{self.attempts} and {self.budget}"
            )
        if self.at_once < 1 or self.answer_mb < 1:
            raise field_error(
                "at_once and answer_mb", "1 or more", f"{self.at_once} and {self.answer_mb}"
            )
        check_model_name(self.model)
        if not self.urls:
            raise field_error("url", "one endpoint or more", "none")
        for url in self.urls:
            check_url(url, self.plain_http, self.protocol)

    @property
    def urls(self) -> tuple[str, ...]:
        """The endpoints, without a slash at the end."""
        given = (self.url,) if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in given)

    @property
    def triggers(self) -> tuple[str, ...]:
        """What `when` says, as words."""
        return (self.when,) if isinstance(self.when, str) else self.when

    def declaration(self) -> dict[str, Any]:
        """What may leave the device, to whom and when: for a privacy page, or a review."""
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
    """A contract out of what `Wrapper` takes: one, an endpoint's URL, or the path of a TOML file.

    Raises:
        FallbackError: EDGE-FALLBACK-001 a field is wrong, -002 the file is.
    """
    if isinstance(given, Fallback):
        return given
    if isinstance(given, str) and "://" in given:
        return Fallback(given)
    if isinstance(given, str) and not given.strip():
        raise field_error(
            "fallback", "a Fallback, a URL or the path of a TOML file", "an empty text"
        )
    if isinstance(given, str | Path):
        return _read_toml(Path(given))
    raise field_error(
        "fallback", "a Fallback, a URL or the path of a TOML file", type(given).__name__
    )


def local_only(contract: Fallback, x: dict[str, Any]) -> str:
    """Who says that nothing may leave this device; empty where nobody does.

    Args:
        contract: The app's.
        x: The manifest's own words, where whoever made the bundle may have said it.
    """
    if set(contract.triggers) & set(LOCAL_ONLY):
        return "the contract"
    if os.environ.get(_VARIABLE, "0") not in ("", "0"):
        return f"the environment ({_VARIABLE})"
    return "the bundle" if x.get("local_only") is True else ""


def _read_toml(path: Path) -> Fallback:
    try:
        said = tomllib.loads(path.read_text("utf-8"))
        return msgspec.convert(said, Fallback)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        if isinstance(error.__cause__, FallbackError):
            raise error.__cause__ from None
        raise FallbackError(
            "EDGE-FALLBACK-002",
            f"contract {path}",
            wanted="TOML with the fields of a Fallback",
            got=getattr(error, "strerror", None) or str(error),
            hint="docs/guide/fallback.md shows one with each field",
        ) from error


#: A model's name at a server, perhaps with a version's path behind it; nothing leads elsewhere.
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*(/[A-Za-z0-9_][A-Za-z0-9._~+@:=-]*)*")
_TYPE_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "bool": "True or False",
    "str": "text",
    "array": "a list of texts",
}
#: What each protocol itself puts behind the address.
_PATH_PREFIXES = {
    "oip": "v2",
    "tfserving": "v1",
    "torchserve": "predictions",
    "mlflow": "invocations",
}


def check_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each of its field's type: no text for a number, no 1 for a bool, no NaN.

    Raises:
        FallbackError: EDGE-FALLBACK-001, one is of another type.
    """
    found = {}
    for name, value in values.items():
        try:
            found[name] = msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            raise field_error(name, _expected(error, kinds[name]), repr(value)[:80]) from None
        if isinstance(found[name], float) and not math.isfinite(found[name]):
            raise field_error(name, "a finite number", repr(value))
    return found


def _expected(error: Exception, kind: Any) -> str:
    if words := [str(word) for word in get_args(kind) if isinstance(word, str)]:
        return " or ".join(words)
    said = str(error).partition("Expected `")[2].partition("`")[0]
    return " or ".join(_TYPE_WORDS.get(word, word) for word in said.split(" | ")) or str(error)


def check_model_name(name: str) -> None:
    """Refuse a model's name that would lead to another path of the endpoint."""
    if name and not _MODEL.fullmatch(name):
        raise field_error("model", "a model's name: letters, digits and ._~+@:=-", repr(name[:80]))


def check_url(url: str, plain_http: bool, protocol: str) -> None:
    """Refuse what is no address of an endpoint, or one that could be read on the way."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise field_error("url", "https://host[:port]", repr(url)) from error
    if (
        parts.scheme not in ("http", "https")
        or not host
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise field_error("url", "https://host[:port][/prefix]", repr(url))
    if parts.path.split("/")[1:2] == [_PATH_PREFIXES[protocol]]:
        raise field_error(
            "url",
            f"the server's address alone: /{_PATH_PREFIXES[protocol]}/... is added here",
            repr(url),
            hint=f"write {parts.scheme}://{parts.netloc}, and the model's name there as model=...",
        )
    if parts.scheme == "http" and not plain_http and not is_loopback(host):
        raise FallbackError(
            "EDGE-FALLBACK-003",
            f"endpoint {url}",
            wanted="https to another machine",
            got="http",
            hint="serve it with TLS, or say plain_http=True where the network itself is yours",
        )


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can answer there, or ask."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def field_error(
    field: str,
    wanted: str,
    got: str,
    hint: str = "docs/guide/fallback.md explains each field of the contract",
) -> FallbackError:
    """The coded error for a field that cannot be used."""
    return FallbackError("EDGE-FALLBACK-001", f"field {field}", wanted=wanted, got=got, hint=hint)


#: One type whoever answered, so that a result that was stored is read back as it was.
FallbackRanOn = RanOn


def with_policy_fields(ran_on: RanOn, note: str = "", **fields: Any) -> FallbackRanOn:
    """``ran_on`` with the contract's fields, and ``note`` after its own."""
    told = "; ".join(filter(None, (ran_on.note, note)))
    return msgspec.structs.replace(ran_on, note=told, **fields)
