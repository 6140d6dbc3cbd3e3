"""Inputs on the edges of a program: values that its constants are compared with or divide.

Random inputs seldom lie on a threshold, a bucket's boundary or a multiple of a divisor, and a
lowering that is wrong there is right elsewhere. Each value fills one input, the others keep the
example's, so that it counts wherever the program reads it. Only values that the program itself
answers are given, and only where its answer stands firm when operations round otherwise
(`edgeserve.backends.session.Session.rounded`): an artifact that is wrong there is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from edgeserve.backends.edge_values import edge_values
from edgeserve.backends.session import Session
from edgeserve.data import Feed
from edgeserve.errors import BackendError
from edgeserve.validate.checks.reference_sanity import MAX_SENSITIVITY, sensitivity

#: Most values of one input, and of all inputs together, that get a feed of their own.
_MAX_ALONE, _MAX_FEEDS = 48, 192
#: Feeds with all values of each input side by side, shifted against each other.
_MIXED = 3
#: Seconds after which no further value is tried: a large program is seen at a few.
_MAX_SECONDS = 6.0


def edge_feeds(
    session: Session, example: Mapping[str, np.ndarray], masks: Collection[str], seed: int
) -> Iterator[tuple[str, Feed]]:
    """Feeds by name, each with the example's shapes.

    Args:
        session: The reference, open.
        example: The source's example inputs.
        masks: Inputs that say which positions count; they stay as they are.
        seed: Of the roundings.
    """
    end = time.monotonic() + _MAX_SECONDS
    known = {spec.name: example[spec.name] for spec in session.io.inputs}

    def firm(feed: Feed) -> bool:
        return time.monotonic() < end and _stands_firm(session, feed, seed)

    found: dict[str, list[np.generic]] = {}
    for name, value in _values(session, known, masks):
        if firm(feed := {**known, name: np.full_like(known[name], value)}):
            found.setdefault(name, []).append(value)
            yield f"{name} = {value}", feed
    for shift in range(_MIXED if found else 0):
        if firm(feed := {**known, **{n: _filled(known[n], v, shift) for n, v in found.items()}}):
            yield f"edges of {', '.join(found)}, shifted by {shift}", feed


def _values(
    session: Session, known: Feed, masks: Collection[str]
) -> Iterator[tuple[str, np.generic]]:
    """Values to try, each with the name of its input."""
    edges = session.edges()
    count = max(1, min(_MAX_ALONE, _MAX_FEEDS // max(1, len(edges))))
    for name, array in known.items():
        if name not in masks and array.size:
            values = edge_values(edges.get(name, ()), array.dtype)
            yield from ((name, value) for value in values[:count])


def _filled(array: np.ndarray, values: list[np.generic], shift: int) -> np.ndarray:
    """All values one after the other, from another one on for each shift."""
    places = (np.arange(array.size) + shift * (len(values) // _MIXED + 1)) % len(values)
    return np.asarray(values, array.dtype)[places].reshape(array.shape)


def _stands_firm(session: Session, feed: Feed, seed: int) -> bool:
    """Whether the program answers by numbers, the same when operations round otherwise."""
    try:
        answer = session.run(feed)
        if not all(np.isfinite(array).all() for array in answer.values()):
            return False
        others = session.rounded(feed, seed)
        return bool(others) and all(_same(answer, other) for other in others)
    except BackendError:  # an id beyond its table, or a sum beyond 32 bits
        return False


def _same(answer: Feed, other: Feed) -> bool:
    """Equal whole numbers, and floats that differ as rounding does."""
    whole = all(
        np.array_equal(array, other[name])
        for name, array in answer.items()
        if array.dtype.kind != "f"
    )
    finite = all(np.array_equal(np.isfinite(a), np.isfinite(other[n])) for n, a in answer.items())
    return whole and finite and sensitivity(answer, other) <= MAX_SENSITIVITY
