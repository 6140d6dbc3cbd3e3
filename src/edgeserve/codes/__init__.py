"""The catalogue of error codes: what ``edgeserve explain CODE`` tells.

One TOML file an area, ``AREA.toml``, with a table a code::

    [EDGE-FILES-001]
    title = "A file could not be written"
    story = "What it means, why edgeserve insists, the usual causes."
    fix = "What to do."

Every code that the source raises stands here, and no other (a test compares both).
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from edgeserve.errors import FilesError, UsageError

__all__ = ["Explanation", "catalogue", "explain"]

_FIELDS = {"title", "story", "fix"}


@dataclass(frozen=True)
class Explanation:
    """The longer story of one code.

    Attributes:
        code: ``EDGE-AREA-NNN``.
        title: What happened, in a few words.
        story: What it means, why edgeserve insists, the usual causes.
        fix: What to do.
    """

    code: str
    title: str
    story: str
    fix: str


@functools.cache
def catalogue() -> Mapping[str, Explanation]:
    """All explanations by code, sorted; read only.

    Raises:
        FilesError: EDGE-FILES-005, edgeserve's own catalogue is damaged.
    """
    return MappingProxyType(_read(resources.files("edgeserve.codes")))


def explain(code: str) -> Explanation:
    """Look up a code as a user types it (upper or lower case).

    Raises:
        UsageError: EDGE-USAGE-010 there is no such code; the hint names the nearest ones.
    """
    known = catalogue()
    wanted = code.strip().upper()
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}?" if near else "codes look like EDGE-BUNDLE-004"
    raise UsageError("EDGE-USAGE-010", code, wanted="a code of edgeserve", got="none", hint=hint)


def _read(folder: Traversable) -> dict[str, Explanation]:
    found: dict[str, Explanation] = {}
    for file in folder.iterdir():
        if file.name.endswith(".toml"):
            found |= _read_area(file)
    return dict(sorted(found.items()))


def _read_area(file: Traversable) -> dict[str, Explanation]:
    try:
        tables = tomllib.loads(file.read_text("utf-8"))  # TOML itself refuses a code given twice
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _damaged(file.name, "TOML", str(error)) from error
    return {code: _entry(file.name, code, table) for code, table in tables.items()}


def _entry(file: str, code: str, table: object) -> Explanation:
    prefix, _, number = code.rpartition("-")
    if prefix != f"EDGE-{file.removesuffix('.toml')}" or not (
        len(number) == 3 and number.isdigit()
    ):
        raise _damaged(file, "codes of the file's own area", code)
    if not isinstance(table, dict) or set(table) != _FIELDS:
        raise _damaged(file, f"title, story and fix for {code}", f"{table!r:.80}")
    texts = {name: " ".join(str(text).split()) for name, text in table.items()}
    if not all(texts.values()):
        raise _damaged(file, f"text in each field of {code}", "an empty one")
    return Explanation(code, **texts)


def _damaged(file: str, wanted: str, got: str) -> FilesError:
    hint = "install edgeserve again"
    return FilesError("EDGE-FILES-005", f"codes/{file}", wanted=wanted, got=got, hint=hint)
