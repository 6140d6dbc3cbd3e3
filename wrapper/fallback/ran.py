"""`FallbackRanOn`: where an answer came from, when a contract with an endpoint was in force."""

from __future__ import annotations

from typing import Any

from edgeserve.types.records import RanOn

__all__ = ["FallbackRanOn", "with_contract"]


class FallbackRanOn(RanOn, frozen=True, kw_only=True):
    """What `RanOn` says, and how the contract was used.

    Attributes:
        why: The trigger for which an endpoint was asked; empty: none was.
        took_ms: From the call of `predict` to the answer.
        attempts: Requests that were sent.
        endpoint: Who answered, scheme and host alone; empty: the device.
        sent_bytes: What left the device for this answer.
    """

    why: str = ""
    took_ms: float = 0.0
    attempts: int = 0
    endpoint: str = ""
    sent_bytes: int = 0


def with_contract(ran_on: RanOn, note: str = "", **fields: Any) -> FallbackRanOn:
    """``ran_on`` with the contract's fields, and ``note`` after its own."""
    base = {name: getattr(ran_on, name) for name in RanOn.__struct_fields__}
    base["note"] = "; ".join(filter(None, (ran_on.note, note)))
    return FallbackRanOn(**base, **fields)
