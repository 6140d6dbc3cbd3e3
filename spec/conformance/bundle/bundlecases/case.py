"""A case: a file, and what a strict reader must say to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bundlecases.content import Json, dump
from bundlecases.rawzip import Member, Piece, build

__all__ = ["Case", "members", "sealed"]


@dataclass(frozen=True)
class Case:
    """One file and the answer to it.

    Attributes:
        name: Unique.
        what: What is special about it, for people.
        pieces: The file.
        error: The code it is refused with; None: it opens.
        read: The member whose reading is refused; None: opening is.
        big: The file is larger than 4 GiB, nearly all of it zeros.
    """

    name: str
    what: str
    pieces: list[Piece]
    error: str | None = None
    read: str | None = None
    big: bool = False


def members(manifest: bytes | Json, files: Mapping[str, bytes]) -> list[Member]:
    """The manifest, then the files, as they lie in a right bundle."""
    data = manifest if isinstance(manifest, bytes) else dump(manifest)
    rest = [Member(path.encode(), content) for path, content in files.items()]
    return [Member(b"manifest.json", data), *rest]


def sealed(manifest: bytes | Json, files: Mapping[str, bytes]) -> list[Piece]:
    """A file that is right in all but what its manifest says."""
    return build(members(manifest, files))


def numbered(cases: Iterable[Case]) -> list[Case]:
    """The cases as a list, after a look that no name is given twice."""
    found = list(cases)
    names = [case.name for case in found]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    return found
