"""Classes and counts, on lines written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dev.corpus.scoring import class_of, score, unseen, untrue


def line(share: float, low: float, high: float, verdict: str, **more: Any) -> dict[str, Any]:
    harm = {"share": share, "lower": low, "upper": high, "n": 1000, "raw": share}
    return {"case": "x", "verdict": verdict, "harm": harm | more}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (line(0.2, 0.121, 0.3, "pass"), "bad"),
        (line(0.2, 0.12, 0.3, "pass"), "between"),
        (line(0.0, 0.0, 0.0133, "pass"), "good"),
        (line(0.0, 0.0, 0.0134, "pass"), "between"),
        (line(0.0, 0.0, 0.003, "fail", strays=0.5), "good"),
        ({"case": "x", "verdict": "void"}, "void"),
    ],
)
def test_the_oracle_alone_says_the_class(given: dict[str, Any], wanted: str) -> None:
    assert class_of(given) == wanted


def test_a_float_file_that_breaks_its_promise_is_found() -> None:
    assert not untrue(line(0.0, 0.0, 0.003, "pass", strays=0.0009))
    assert untrue(line(0.0, 0.0, 0.003, "pass", strays=0.0011))
    assert not untrue(line(0.0, 0.0, 0.003, "pass"))


def test_unproven_misses_the_bad_and_alarms_on_the_good() -> None:
    bad = [line(0.5, 0.4, 0.6, v) for v in ("fail", "unproven", "degraded", "refused", "crash")]
    good = [line(0.0, 0.0, 0.003, v) for v in ("pass", "unproven", "degraded", "fail", "pass")]
    found = score(bad + good)
    assert (found.bad, len(found.missed)) == (5, 2)
    assert (found.good, len(found.alarms), len(found.degraded)) == (5, 2, 1)
    assert found.detected[0] == pytest.approx(0.6)
    assert found.alarm_rate[0] == pytest.approx(0.4)


def test_the_most_harm_that_passed() -> None:
    lines = [
        line(0.01, 0.0, 0.02, "pass"),
        line(0.03, 0.02, 0.04, "pass"),
        line(0.3, 0.2, 0.4, "fail"),
    ]
    assert unseen(lines, ("pass",)) is lines[1]
    assert unseen(lines, ("degraded",)) is None
