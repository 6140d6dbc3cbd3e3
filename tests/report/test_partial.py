"""Workspaces half done, damaged or strange: shown as far as they go, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeserve import jobs
from edgeserve.errors import FilesError, ReportError
from edgeserve.report import Rendered, ReportRequest
from edgeserve.report.html import render_report
from edgeserve.report.request import VERB
from edgeserve.types.reports import WorstInput

Show = Callable[[Any], Any]


@pytest.mark.parametrize(
    "fields",
    [{"decisions": None}, {"outputs": (), "decisions": None}, {"checks": ()}, {"seconds": "nan"}],
)
def test_partial_reports_are_shown(fields: dict[str, Any], desk: Any, show: Show) -> None:
    desk.report(desk.artifact(), **fields)
    desk.write()
    assert "ONNX fp32" in show(desk).text


def test_figures_that_are_no_numbers_are_shown_in_words(
    desk: Any, show: Show, figures: Any
) -> None:
    made = desk.artifact("unproven")
    broken = figures.rate(0, 10, 10.0)
    broken = msgspec.structs.replace(broken, rate="nan", lower="nan", upper="nan", n_eff="nan")
    desk.report(
        made,
        outputs=(*figures.outputs("inf"), *figures.outputs("nan", "boxes")),
        decisions=msgspec.structs.replace(
            figures.decisions(0), raw=broken, decided=broken, minimum_harm="nan"
        ),
    )
    desk.measure(made, rss_mb="nan", load_ms="inf", wall_ms=(), cpu_ms=())
    desk.write()
    text = show(desk).text
    assert "infinite" in text
    assert "unknown" in text


def test_an_artifact_without_report_or_measurement(desk: Any, show: Show) -> None:
    desk.artifact()
    desk.write()
    text = show(desk).text
    assert "not validated" in text
    assert "not measured" in text
    assert "no artifact has been validated" in text


@pytest.mark.parametrize("refusals", [0, 2])
def test_nothing_that_may_ship(refusals: int, desk: Any, show: Show) -> None:
    for precision in ("w8", "fp16")[:refusals]:
        desk.refuse(precision, path=None)
    desk.write()
    page = show(desk)
    assert page.tags["figure"] == 0
    assert page.tags["table"] == (refusals > 1), "several are shown side by side"
    assert page.tags["h1"] == 1
    assert "Keep it inside" not in page.text


def test_notes_and_generated_inputs_are_shown(desk: Any, show: Show, figures: Any) -> None:
    desk.report(
        desk.artifact(),
        generated=figures.outputs(0.0007),
        error=0.0042,
        notes=("tensors were compared on the first 64 of 412 inputs",),
    )
    desk.write()
    text = show(desk).text
    assert "logits (synthetic inputs)" in text
    assert "largest error of the score 0.0042" in text
    assert "on the first 64 of 412 inputs" in text


def test_inputs_without_a_picture_are_listed(desk: Any, show: Show) -> None:
    worst = WorstInput("row 7", None, "a 0.5", "b 0.5", None, 0.1, True)
    desk.report(desk.artifact(), worst=(worst,))
    desk.write()
    page = show(desk)
    assert "no picture" in page.text
    assert "row 7" in page.text


def test_several_batches_are_told_apart(desk: Any, show: Show) -> None:
    made = desk.artifact()
    desk.put("onnx-fp32.b8.measure.json", desk.measure(made, batch=8))
    desk.measure(made)
    desk.write()
    text = show(desk).text
    assert "model alone, batch 1" in text
    assert "model alone, batch 8" in text


def test_what_speaks_of_other_bytes_is_left_aside_aloud(desk: Any, show: Show) -> None:
    made = desk.artifact()
    desk.report(made, artifact_sha256="f" * 64)
    desk.measure(made, artifact_sha256="f" * 64)
    desk.write()
    text = show(desk).text
    assert (
        "another version of the artifact: onnx-fp32.validate.json, onnx-fp32.measure.json." in text
    )
    assert "not validated" in text


def test_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for where, got in (
        (tmp_path, "folder"),
        (tmp_path / "file", "file"),
        (tmp_path / "x", "no such folder"),
    ):
        with pytest.raises(ReportError, match=got) as caught:
            render_report(ReportRequest(workspace=str(where), out=str(tmp_path / "r.html")))
        assert caught.value.code == "EDGE-REPORT-001"
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"x": 1}', b"\xff", b"[]"])
def test_a_damaged_file_is_named_and_not_skipped(content: bytes, full: Any, tmp_path: Path) -> None:
    (full.root / "reports" / "onnx-fp32.measure.json").write_bytes(content)
    with pytest.raises(ReportError, match=r"reports/onnx-fp32\.measure\.json") as caught:
        render_report(ReportRequest(workspace=str(full.root), out=str(tmp_path / "r.html")))
    assert caught.value.code == "EDGE-REPORT-002"


def test_a_report_that_cannot_be_written_leaves_no_half(full: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(FilesError):
        render_report(ReportRequest(workspace=str(full.root), out=str(tmp_path / "taken")))
    assert list((tmp_path / "taken").iterdir()) == []


def test_the_verb_runs_in_a_worker(full: Any, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    request = ReportRequest(workspace=str(full.root), out=str(out))
    done = jobs.run(VERB, request, Rendered, tmp_path / "job")
    assert done == Rendered(path=str(out), size=out.stat().st_size)
