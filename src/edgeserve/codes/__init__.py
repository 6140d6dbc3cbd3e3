"""The catalogue of error codes: what ``edgeserve explain CODE`` tells.

One TOML file an area, ``AREA.toml``, with a table a code::

    [EDGE-FILES-001]
    title = "A file could not be written"
    story = "What it means, why edgeserve insists, the usual causes."
    fix = "What to do: run {install:onnx}, or {upgrade}."

``{install:EXTRA}`` and ``{upgrade}`` stand for the command that works for this installation. Every
code that the source raises stands here, and no other (a test compares both).
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from edgeserve.errors import FilesError, UsageError
from edgeserve.installation import DISTRIBUTION, install_command, published_command, upgrade_command

__all__ = ["Explanation", "catalogue", "explain"]

_FIELDS = {"title", "story", "fix"}
_COMMAND = re.compile(r"\{(?:install:(\w+)|upgrade)\}")


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
def catalogue(published: bool = False) -> Mapping[str, Explanation]:
    """All explanations by code, sorted; read only.

    Args:
        published: Name the commands for a published release, as pages do, in place of those for
            this installation.

    Raises:
        FilesError: EDGE-FILES-005, edgeserve's own catalogue is damaged.
    """
    return MappingProxyType(_read(resources.files("edgeserve.codes"), published))


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


def _read(folder: Traversable, published: bool = False) -> dict[str, Explanation]:
    found: dict[str, Explanation] = {}
    for file in folder.iterdir():
        if file.name.endswith(".toml"):
            found |= _read_area(file, published)
    return dict(sorted(found.items()))


def _read_area(file: Traversable, published: bool) -> dict[str, Explanation]:
    try:
        tables = tomllib.loads(file.read_text("utf-8"))  # TOML itself refuses a code given twice
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _damaged(file.name, "TOML", str(error)) from error
    return {code: _entry(file.name, code, table, published) for code, table in tables.items()}


def _entry(file: str, code: str, table: object, published: bool) -> Explanation:
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
    texts["fix"] = _COMMAND.sub(lambda word: f"`{_command(word[1], published)}`", texts["fix"])
    return Explanation(code, **texts)


def _command(extra: str | None, published: bool) -> str:
    """The shell command for an extra, or for a newer version where none is named."""
    if extra is None:
        return f"pip install -U {DISTRIBUTION}" if published else upgrade_command()
    return published_command(extra) if published else install_command(extra)


def _damaged(file: str, wanted: str, got: str) -> FilesError:
    hint = "install edgeserve again"
    return FilesError("EDGE-FILES-005", f"codes/{file}", wanted=wanted, got=got, hint=hint)
