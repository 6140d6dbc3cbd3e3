"""What a command prints of an answer that holds many decisions."""

from __future__ import annotations

import numpy as np
import pytest

from edgeserve.cli.tables import print_answers
from edgeserve.types.records import Classification, Detection, Span, Tokens


def test_boxes_are_printed_with_label_and_corners(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Detection(
        boxes=np.array([[1.2, 2.0, 30.0, 40.4], [5, 6, 7, 8]]),
        scores=np.array([0.91, 0.5]),
        labels=("cat", "dog"),
    )
    print_answers(["a.jpg"], [answer])
    first, *boxes = capsys.readouterr().out.splitlines()
    assert first.startswith("a.jpg\t")
    assert [line.split() for line in boxes] == [
        ["0.910", "cat", "1", "2", "30", "40"],
        ["0.500", "dog", "5", "6", "7", "8"],
    ]


def test_a_foreign_label_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "cat\x1b[2J\n\u202eowl"
    answer = Classification(label=evil, score=0.5, top=((evil, 0.5), (evil, 0.4)))
    print_answers(["a\x1b.jpg"], [answer])
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\u202e"}
    assert len(out.splitlines()) == 2
    assert r"cat\x1b[2J\n\u202eowl" in out


def test_spans_are_printed_and_many_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    spans = tuple(Span(start=i, end=i + 1, label="PER", score=0.75) for i in range(30))
    print_answers(["text"], [Tokens(spans=spans)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["0.750", "PER", "0-1"]
    assert lines[-1].strip() == "and 10 more: --json has them all"
    assert len(lines) == 22
