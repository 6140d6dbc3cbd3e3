"""Prepared inputs that still know what they were made from: what boxes and spans are told in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgeserve.processing.geometry import Size

__all__ = ["ORIGIN", "Origin", "Prepared", "origins_of", "origins_to_arrays", "with_origins"]

#: Names of the arrays of an origin (`origins_to_arrays`).
ORIGIN = ("size", "offsets")


class Origin(NamedTuple):
    """What one sample was made from.

    Attributes:
        size: Height and width of the upright picture.
        offsets: Where each token lies in the text, int64 [tokens, 2]: first character and the one
            after the last; -1 for special tokens.
    """

    size: Size | None = None
    offsets: np.ndarray | None = None


class Prepared(dict[str, np.ndarray]):
    """Arrays by input name, of one sample or a batch, and the origin of each sample."""

    __slots__ = ("origins",)

    def __init__(self, arrays: Mapping[str, np.ndarray], origins: Sequence[Origin] = ()) -> None:
        super().__init__(arrays)
        self.origins = tuple(origins)


def origins_of(feeds: Sequence[Mapping[str, np.ndarray]]) -> tuple[Origin, ...]:
    """The origins of all samples in order; none unless each has one."""
    found = [feed.origins if isinstance(feed, Prepared) else () for feed in feeds]
    return tuple(origin for origins in found for origin in origins) if all(found) else ()


def origins_to_arrays(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The origin of a single sample's feed as arrays, for a file; nothing where it has none."""
    if not isinstance(feed, Prepared) or len(feed.origins) != 1:
        return {}
    (origin,) = feed.origins
    arrays = {} if origin.size is None else {"size": np.array(origin.size, np.int64)}
    return arrays if origin.offsets is None else {**arrays, "offsets": origin.offsets}


def with_origins(
    feed: dict[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """A feed with the origin that `origins_to_arrays` gave."""
    if not arrays:
        return feed
    size = arrays.get("size")
    whole = None if size is None else (int(size[0]), int(size[1]))
    return Prepared(feed, (Origin(whole, arrays.get("offsets")),))
