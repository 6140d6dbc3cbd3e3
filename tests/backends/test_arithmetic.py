"""Arithmetic of each format against eager PyTorch, and the reference page that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.arithmetic import EXPRESSIONS, FORMATS, expressions, measure

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "arithmetic.md"


def _cells(format: str) -> dict[tuple[str, str], str]:
    """A format's column of the page, by dtype and expression."""
    lines = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line
    ]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {(row[0], row[1].strip("`")): row[2 + FORMATS.index(format)] for row in rows}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", FORMATS)
def test_the_page_says_what_a_format_computes(format: str) -> None:
    found = measure(format)
    assert "WRONG" not in found.values(), [row for row, cell in found.items() if cell == "WRONG"]
    assert found == _cells(format)


def test_the_page_has_every_expression() -> None:
    rows = [(dtype, code) for dtype in EXPRESSIONS for code in expressions(dtype)]
    assert list(_cells("onnx")) == rows
