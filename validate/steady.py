"""A server that answers the same to everything, whatever the model would say: it proves nothing.

A server of its own may well say one thing of many inputs (photos of cats alone, scenes without
anything in them). So its answers are held beside those of the exported program, on the user's
inputs and on drawn ones: only where the program moves and the server never does is it called out.
"""

from __future__ import annotations

from edgeserve.types.base import encode
from edgeserve.types.records import Classification, Record, Segmentation, Text
from edgeserve.types.samples import StoredAnswer

__all__ = ["FEWEST", "Steady"]

#: From so many answers on, one that is always the same is no coincidence.
FEWEST = 3
#: The same for answers that are words alone: a sound server says "cat" of many cats.
_FEWEST_BARE = 8


class Steady:
    """Watches whether a server's decisions ever change, and whether the program's do."""

    def __init__(self) -> None:
        self._first: tuple[bytes, bytes] | None = None
        self._moved = [False, False]  # the server, the program
        self._count = 0
        self._bare = False

    def add(self, stored: StoredAnswer, program: Record | None) -> None:
        """Take in what both answer to one input; once the server moved, nothing is looked at."""
        if stored.record is None or program is None or self._moved[0]:
            return
        said = (
            encode(_decision(stored.record, stored.scored)),
            encode(_decision(program, stored.scored)),
        )
        self._first = self._first or said
        self._count += 1
        self._bare |= not stored.scored
        for side in (0, 1):
            self._moved[side] |= said[side] != self._first[side]

    @property
    def steady(self) -> bool:
        """The server always answers the same, and the exported program does not."""
        fewest = _FEWEST_BARE if self._bare else FEWEST
        return self._count >= fewest and self._moved == [False, True]


def _decision(record: Record, scored: bool) -> object:
    """A decision without what the program adds to a server's: margins, a bare label's scores."""
    if isinstance(record, Segmentation):
        return record.mask
    if isinstance(record, Text):
        return record.tokens
    return record if scored or not isinstance(record, Classification) else record.label
