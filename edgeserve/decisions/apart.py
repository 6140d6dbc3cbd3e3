"""Large arrays of a record, kept beside it: JSON is no place for a mask of a million pixels."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from edgeserve.types.records import Depth, Record, Segmentation, Voice

__all__ = ["emptied", "filled", "held_apart"]

_FIELDS: dict[type, tuple[str, ...]] = {
    Segmentation: ("mask", "margin"),
    Depth: ("map",),
    Voice: ("prob",),
}


def held_apart(record: Record | None) -> dict[str, np.ndarray]:
    """The arrays that are to lie in a file of their own, by field; none for most records."""
    names = _FIELDS.get(type(record), ())
    found = {name: getattr(record, name) for name in names}
    return {name: array for name, array in found.items() if array is not None}


def emptied(record: Record) -> Record:
    """The record without them."""
    arrays = held_apart(record)
    bare = {name: np.zeros((0,) * array.ndim, array.dtype) for name, array in arrays.items()}
    return msgspec.structs.replace(record, **bare) if bare else record


def filled(record: Record, arrays: Mapping[str, np.ndarray]) -> Record:
    """Undo `emptied`.

    Args:
        record: What it gave.
        arrays: What `held_apart` gave; others are left out.

    Raises:
        ValueError: an array is missing, or is none that the record takes.
    """
    names = held_apart(record)
    if not names:
        return record
    if missing := names.keys() - arrays.keys():
        raise ValueError(f"the record's {sorted(missing)} are missing")
    return msgspec.structs.replace(record, **{name: arrays[name] for name in names})
