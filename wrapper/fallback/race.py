"""What a call sees of the world: time that passes, requests that end. Real, or a test's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Fault", "Message", "Outcome", "Race", "Reply"]


@dataclass(frozen=True)
class Message:
    """A request as it leaves: below which path of the endpoint, its headers and its bytes."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What an endpoint said, headers in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Fault:
    """Why there is no reply.

    Attributes:
        told: In a few words, without addresses.
        again: Whether asking the same endpoint again may help.
    """

    told: str
    again: bool = True


Outcome = Reply | Fault


class Race(Protocol):
    """Requests of one call side by side, and the time."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def start(self, url: str, message: Message, deadline: float) -> int:
        """Send a request; it is numbered."""

    def next(self, until: float) -> tuple[int, Outcome] | None:
        """Wait for a request to end, at most until a time; None: none did."""

    def abandon(self, number: int) -> None:
        """What this request would still say is of no interest."""
