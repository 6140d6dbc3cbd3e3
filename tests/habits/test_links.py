"""The pages of the project lead somewhere: every link has a target, every page has a way to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import pytest

#: ``[text](target)`` and ``![alt](target)``, with or without a title; images may nest in a link.
_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:")


def links(text: str) -> Iterator[str]:
    """Relative targets of a page, code blocks left out."""
    plain = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    for target in _LINK.findall(plain) + _HTML.findall(plain):
        if not _SCHEME.match(target):
            yield target


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub derives them."""
    found: dict[str, int] = {}
    made = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        made.add(f"{name}-{count}" if count else name)
    return made


def broken(page: Path, pages: Mapping[Path, str], root: Path) -> Iterator[str]:
    """Each link of a page that has no target: no such file, or no such heading in it."""
    for target in links(pages[page]):
        path, _, anchor = target.partition("#")
        there = Path(os.path.normpath(page.parent / unquote(path))) if path else page
        if not (root / there).exists():
            yield f"{page} links to {target}: no such file"
        elif anchor and there in pages and anchor not in anchors(pages[there]):
            yield f"{page} links to {target}: no such heading"


@pytest.fixture(scope="module")
def pages(texts: Mapping[Path, str]) -> Mapping[Path, str]:
    return {path: text for path, text in texts.items() if path.suffix == ".md"}


def test_every_relative_link_has_a_target(pages: Mapping[Path, str], root: Path) -> None:
    assert not (found := [b for page in pages for b in broken(page, pages, root)]), "\n".join(found)


def test_every_page_is_reached_from_the_readme(pages: Mapping[Path, str], root: Path) -> None:
    reached: set[Path] = set()
    queue = [Path("README.md")]
    while queue:
        page = queue.pop()
        if page in reached or page not in pages:
            continue
        reached.add(page)
        for target in links(pages[page]):
            there = Path(os.path.normpath(page.parent / unquote(target.partition("#")[0])))
            folder = (root / there).is_dir()
            queue += [p for p in pages if p.parent == there] if folder else [there]
    unreached = {str(p) for p in pages if p.parts[0] == "docs" and p not in reached}
    assert not unreached


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see [a](b.md)", "a.md links to b.md: no such file"),
        ("![a](b.png)", "a.md links to b.png: no such file"),
        ('<img src="b.svg" alt="">', "a.md links to b.svg: no such file"),
        ("# One\n[a](#two)", "a.md links to #two: no such heading"),
        ("# One two\n[a](#one-two), [b](https://example.com), `[c](d)`", ""),
        ("```\n[a](b.md)\n```", ""),
    ],
)
def test_a_planted_link_is_found(text: str, wanted: str, tmp_path: Path) -> None:
    page = Path("a.md")
    (tmp_path / page).write_text(text)
    assert ", ".join(broken(page, {page: text}, tmp_path)) == wanted
