"""``docs/reference/errors.md`` says what the catalogue says, and is checked as CI checks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.errors_page import main, page
from edgeserve.codes import catalogue


def test_the_page_is_what_the_catalogue_says(root: Path) -> None:
    assert main(["--check", str(root / "docs" / "reference" / "errors.md")]) == 0


def test_each_code_has_one_heading_under_its_area() -> None:
    areas: dict[str, list[str]] = {}
    for line in page().splitlines():
        if line.startswith("## "):
            current = areas.setdefault(line.removeprefix("## "), [])
        elif line.startswith("### "):
            current.append(line.removeprefix("### "))
    assert [code for codes in areas.values() for code in codes] == list(catalogue())
    assert all(code.split("-")[1] == area for area, codes in areas.items() for code in codes)


def test_stories_and_fixes_stand_on_the_page_as_they_are() -> None:
    plain = re.sub(r"\\(.)", r"\1", page())
    for entry in catalogue(published=True).values():
        assert f"**{entry.title}.** {entry.story}" in plain
        assert f"What to do: {entry.fix}" in plain


def test_a_stale_page_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "errors.md"
    assert main(["--check", str(file)]) == 1
    assert main(["--write", str(file)]) == 0
    assert main(["--check", str(file)]) == 0
    file.write_text(file.read_text("utf-8").replace("What to do", "What to know", 1), "utf-8")
    assert main(["--check", str(file)]) == 1
    assert "--write" in capsys.readouterr().out
    assert main([]) == 2
