"""Where detection becomes certain, on lines written by hand; bounds by the closed form."""

from __future__ import annotations

from typing import Any

import pytest

from dev.corpus.curves import curve, interval, kinds, onset
from dev.corpus.summary import summary


def line(share: float, verdict: str, kind: str = "scale-wrong", **more: Any) -> dict[str, Any]:
    harm = {"share": share, "lower": share * 0.8, "upper": share * 1.2, "n": 1000, "raw": share}
    held = {
        "case": f"{kind}/{share}",
        "verdict": verdict,
        "harm": harm,
        "kind": kind,
        "place": "file",
        "format": "onnx",
        "precision": "fp32",
        "task": "digits",
        "value": 1,
        "reasons": [],
        "revision": "ab",
    }
    return held | more


LINES = [
    line(0.0, "pass"),
    line(0.05, "degraded"),
    line(0.02, "fail"),
    line(0.09, "fail"),
    line(0.3, "refused"),
    line(0.9, "crash", "few-bits"),
    {**line(0.0, "void"), "harm": None},
]


def test_certainty_begins_beyond_the_worst_that_was_kept() -> None:
    found = onset(LINES, ("fail", "refused", "crash"))
    assert found.least is LINES[3]
    assert found.beyond == 3
    assert found.at_least == pytest.approx(0.05 ** (1 / 3))  # all of three
    found = onset(LINES, ("fail", "refused", "crash", "degraded"))
    assert (found.least, found.beyond) == (LINES[2], 5)


def test_nothing_is_certain_where_the_worst_is_kept() -> None:
    found = onset([*LINES, line(0.95, "pass")], ("fail", "refused", "crash"))
    assert (found.least, found.beyond, found.at_least) == (None, 0, 0.0)
    assert interval(found.least) == "-"


def test_bins_hold_what_was_measured_in_them() -> None:
    rows = curve(LINES).splitlines()
    assert "| 0 % to 0.25 % | 1 | 0 % (0 % to 95 %) | 100 % |" in rows
    assert "| 8 % to 12 % | 1 | 100 % (5 % to 100 %) | 0 % |" in rows


def test_each_kind_has_its_own_curve() -> None:
    rows = kinds(LINES).splitlines()
    (few,) = [row for row in rows if row.startswith("| few-bits")]
    (wrong,) = [row for row in rows if row.startswith("| scale-wrong")]
    assert few == "| few-bits | file |  |  |  |  |  | 1/1 | 0 | 0 | 90 % (72 % to 108 %) | - |"
    assert "| 0/1 | 1/2 | 1/1 |  | 1/1 |  | 0 | 0 | 2 % (1.6 % to 2.4 %) | 5 % " in wrong


def test_the_summary_says_which_code_it_is_of() -> None:
    assert "Done: 7 of 9 cases, judged by revision `ab`." in summary(LINES, 9)
    mixed = summary([*LINES, line(0.1, "fail", revision="cd")], 9)
    assert "several revisions, whose figures do not belong together: `ab` (7), `cd` (1)" in mixed
