"""Decisions in an endpoint's own words: JSON of a record, or of what a callable may return."""

from __future__ import annotations

import msgspec
import numpy as np

from edgeserve.types.base import decode
from edgeserve.types.records import Record

__all__ = ["from_words", "record_said"]


def record_said(answer: bytes) -> object:
    """A record in JSON, or (for the task without one) named arrays.

    Raises:
        ValueError: it is neither; so are msgspec's errors of JSON.
    """
    plain = msgspec.json.decode(answer)
    if isinstance(plain, dict) and "record" not in plain:
        return {name: np.asarray(value) for name, value in plain.items()}
    return decode(answer, Record)  # type: ignore[arg-type]


def from_words(answer: bytes) -> object:
    """What a BYTES output says: JSON of a decision or a label, else the text itself, a label."""
    try:
        plain = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return answer.decode("utf-8", "replace")
    if isinstance(plain, dict) and "record" in plain:
        try:
            return decode(answer, Record)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, ValueError):
            return plain
    return plain
