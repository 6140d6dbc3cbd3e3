"""What an attack is, what it aims at, and what it counts.

An attack is a function of a `Target` and a `Tally` that works until ``target.over``. Each module of
attacks adds its own with `attack`, so that a name stands in one place.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The modules that hold attacks, in the order in which they are run.
MODULES = (
    "pipelining heads slow connections protocol compressed json_bodies binary_bodies pictures "
    "media grpc_calls grpc_frames control"
).split()
#: Statuses that gRPC's own library gives, without a code of ours.
_LIBRARY = "RESOURCE_EXHAUSTED DEADLINE_EXCEEDED CANCELLED UNAVAILABLE UNIMPLEMENTED".split()
_CODE = re.compile(r"EDGE-[A-Z]+-\d{3}")
_MOST_WRONG = 10


@dataclass
class Target:
    """The endpoint under attack.

    Attributes:
        port: Of REST.
        grpc_port: Of gRPC.
        seconds: How long the attack lasts.
        body_mb: The endpoint's limit of a body, MB.
        model: Name of the model.
        tls: Whether the ports expect TLS.
        began: When the first byte was to be sent, on the monotonic clock; 0: not yet.
    """

    port: int
    grpc_port: int
    seconds: float
    body_mb: int = 64
    model: str = "tagger"
    tls: bool = False
    began: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the time is up; it begins with the first question, when bodies are made."""
        self.began = self.began or time.monotonic()
        return time.monotonic() - self.began >= self.seconds

    @property
    def infer(self) -> str:
        """The path of named tensors."""
        return f"/v2/models/{self.model}/infer"

    @property
    def predict(self) -> str:
        """The path of raw bytes."""
        return f"/v2/models/{self.model}/predict"


@dataclass
class Tally:
    """What an attack sent and what came back.

    Attributes:
        statuses: Answers by status; ``closed`` counts connections that the endpoint ended.
        wrong: Answers that the contract forbids, the first of them.
        sent: Bytes.
        connections: That were made.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    sent: int = 0
    connections: int = 0

    def rest(self, status: int, body: bytes) -> None:
        """Count an answer of HTTP: an error needs a code, and 500 is nobody's right answer."""
        self.statuses[str(status)] += 1
        if status < 400:
            return
        try:
            code = str(json.loads(body)["code"]) if body else "HEAD"
        except (ValueError, KeyError, TypeError):
            code = ""
        if status == 500 or not (code == "HEAD" or _CODE.fullmatch(code)):
            self._note(f"{status} {body[:200]!r}")

    def grpc(self, status: str, details: str) -> None:
        """Count an answer of gRPC; the library's own refusals have no code."""
        self.statuses[status] += 1
        coded = _CODE.match(details) and status not in ("INTERNAL", "UNKNOWN")
        if status != "OK" and not coded and status not in _LIBRARY:
            self._note(f"{status} {details[:200]}")

    def _note(self, line: str) -> None:
        if len(self.wrong) < _MOST_WRONG:
            self.wrong.append(line)


@dataclass(frozen=True)
class Attack:
    """An attack and the endpoint that it needs.

    Attributes:
        name: Kind and case.
        run: What it does.
        keys: Whether the endpoint asks for keys, which the attacker does not have.
        files: Descriptors that the endpoint may have; None: as many as usual. Others cannot
            connect when they are gone, so that their latency is not judged.
        bundle: The model: ``photo``, ``text`` or ``sound``.
        tls: Whether the endpoint speaks TLS.
    """

    name: str
    run: Callable[[Target, Tally], None]
    keys: bool = False
    files: int | None = None
    bundle: str = "photo"
    tls: bool = False

    @property
    def kind(self) -> str:
        """The word before the colon."""
        return self.name.partition(":")[0]


ATTACKS: dict[str, Attack] = {}


def attack(name: str, **needs: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function as an attack; `needs` are fields of `Attack`."""

    def add(run: Callable[..., None]) -> Callable[..., None]:
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, run, **needs)
        return run

    return add


def load() -> dict[str, Attack]:
    """All attacks by name."""
    for module in MODULES:
        importlib.import_module(f"dev.benchmarks.attacks.{module}")
    return ATTACKS


def chosen(names: Iterable[str], only: Sequence[str] | None) -> list[str]:
    """The names that hold one of these texts; all where none is given."""
    return [name for name in names if not only or any(text in name for text in only)]
