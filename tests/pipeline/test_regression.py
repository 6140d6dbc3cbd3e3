"""Reports then and now: what counts as worse, held to another implementation of the same test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import scipy.stats

from edgeserve.environment import environment
from edgeserve.errors import UsageError
from edgeserve.pipeline.regression import compare_reports, fisher_p, model_id_at, reports_at
from edgeserve.types.artifact import Judgement
from edgeserve.types.base import encode
from edgeserve.types.records import Runtime
from edgeserve.types.reports import DecisionStats, Limits, Rate, Report
from edgeserve.validate.stats.binomial import rate


def flips(count: int, n: int) -> Rate:
    return rate((str(i), i < count) for i in range(n))


def report(verdict: Any, flipped: int, of: int = 400, **fields: Any) -> Report:
    found = flips(flipped, of)
    decisions = DecisionStats(
        task="image-classification", inputs=of, groups=of, raw=found, decided=found
    )
    made = Report(
        artifact_sha256="0" * 64,
        format="onnx",
        precision="w8a8",
        runtime=Runtime("x", "1", "cpu"),
        reference="pt2",
        preprocessing="",
        inputs=f"{of} inputs",
        limits=Limits(),
        checks=(),
        outputs=(),
        decisions=decisions,
        worst=(),
        judgement=Judgement(verdict=verdict),
        environment=environment(),
        seconds=1.0,
    )
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((3, 400), (12, 400)),
        ((0, 20), (3, 30)),
        ((5, 50), (5, 50)),
        ((9, 90), (0, 40)),
        ((0, 10), (0, 10)),
        ((7, 7), (8, 8)),
    ],
)
def test_the_test_is_fishers(before: tuple[int, int], now: tuple[int, int]) -> None:
    (a, n), (b, m) = before, now
    known = scipy.stats.fisher_exact([[b, m - b], [a, n - a]], alternative="greater").pvalue
    assert fisher_p(flips(a, n), flips(b, m)) == pytest.approx(known, rel=1e-9)


def test_more_flips_of_the_same_verdict_are_worse() -> None:
    (change,) = compare_reports({"onnx-w8a8": report("pass", 1)}, {"onnx-w8a8": report("pass", 9)})
    assert change.worse
    assert "1 of 400 decided answers flipped before, 9 of 400 now" in change.words


def test_chance_is_not_worse() -> None:
    (change,) = compare_reports({"a": report("pass", 3)}, {"a": report("pass", 5)})
    assert not change.worse
    (change,) = compare_reports({"a": report("pass", 9)}, {"a": report("pass", 0)})
    assert not change.worse


def test_a_worse_verdict_is_worse_and_a_better_one_is_not() -> None:
    (change,) = compare_reports({"a": report("pass", 3)}, {"a": report("degraded", 3)})
    assert change.worse
    assert change.words.startswith("pass before, degraded now")
    (change,) = compare_reports({"a": report("unproven", 3)}, {"a": report("degraded", 3)})
    assert not change.worse


def test_other_inputs_are_named_and_so_are_artifacts_that_came_or_went() -> None:
    old = {"a": report("pass", 3), "gone": report("pass", 3)}
    new = {"a": report("pass", 3, 500), "new": report("pass", 3)}
    words = {change.name: change.words for change in compare_reports(old, new)}
    assert "judged on other inputs" in words["a"]
    assert words["gone"] == "is not there any more"
    assert words["new"] == "was not there before"


def test_another_model_is_not_compared() -> None:
    other = report("fail", 300)
    stats = msgspec.structs.replace(other.decisions, task="text-classification")
    (change,) = compare_reports(
        {"a": report("pass", 0)}, {"a": msgspec.structs.replace(other, decisions=stats)}
    )
    assert not change.worse
    assert "another model" in change.words


def test_a_workspace_of_another_model_is_said() -> None:
    (change,) = compare_reports({"a": report("pass", 3)}, {"a": report("pass", 3)}, "ab" * 32)
    assert "of another model before, model_id abababab" in change.words
    assert not change.worse


def test_whose_reports_they_are(workspace: Path, tmp_path: Path) -> None:
    wanted = json.loads((workspace / "manifest.json").read_bytes())["model_id"]
    reports = workspace / "reports"
    for path in (workspace, reports, reports / "onnx-fp32.validate.json"):
        assert model_id_at(path) == wanted, path
    assert model_id_at(tmp_path / "elsewhere") is None


def test_reports_are_found_where_people_keep_them(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "reports"
    folder.mkdir(parents=True)
    (folder / "onnx-w8a8.validate.json").write_bytes(encode(report("pass", 3)))
    for path in (tmp_path / "out", folder, folder / "onnx-w8a8.validate.json"):
        assert set(reports_at(path)) == {"onnx-w8a8"}


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe", b'{"format": "onnx"}'])
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "old.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="EDGE-USAGE-011"):
        reports_at(path)
