"""`FallbackRanOn`: where an answer came from, when a contract with an endpoint was in force."""

from __future__ import annotations

from typing import Any

import msgspec

from edgeserve.types.records import RanOn

__all__ = ["FallbackRanOn", "with_contract"]

#: One type whoever answered, so that a result that was stored is read back as it was.
FallbackRanOn = RanOn


def with_contract(ran_on: RanOn, note: str = "", **fields: Any) -> FallbackRanOn:
    """``ran_on`` with the contract's fields, and ``note`` after its own."""
    told = "; ".join(filter(None, (ran_on.note, note)))
    return msgspec.structs.replace(ran_on, note=told, **fields)
