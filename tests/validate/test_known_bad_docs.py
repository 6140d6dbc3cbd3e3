"""The table of ``docs/explanation/known-bad.md`` is honest: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    int(line.split("|")[1]): line
    for line in (ROOT / "docs" / "explanation" / "known-bad.md").read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
}


def test_every_row_is_there_once() -> None:
    assert sorted(ROWS) == list(range(1, 23))
    text = (ROOT / "docs" / "explanation" / "known-bad.md").read_text()
    assert len(re.findall(r"^\| \d+ \|", text, re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("row", sorted(ROWS))
def test_the_tests_that_a_row_names_are_there(row: int) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", ROWS[row])
    assert named
    assert len(named) == ROWS[row].count("::")
    for path, name in named:
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), (path, name)


def test_the_codes_are_explained() -> None:
    explained = "".join(
        p.read_text() for p in (ROOT / "src" / "edgeserve" / "codes").glob("*.toml")
    )
    for code in re.findall(r"EDGE-[A-Z]+-\d+", " ".join(ROWS.values())):
        assert code in explained, code


def test_the_kinds_are_those_of_the_corpus() -> None:
    from dev.corpus.kinds import KINDS

    named = [
        kind
        for line in ROWS.values()
        for said in re.findall(r"; kinds? (.*) \|$", line)
        for kind in re.findall(r"`([\w-]+)`", said)
    ]
    assert len(named) > 10
    assert set(named) <= set(KINDS)
