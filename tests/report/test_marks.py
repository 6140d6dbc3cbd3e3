"""Boxes over photos: where the figures say, in the photo's own pixels, and by both sides."""

from __future__ import annotations

import re
from typing import Any

from edgeserve.report.html import render_report
from edgeserve.report.request import ReportRequest
from edgeserve.types.reports import Mark, WorstInput


def rendered(desk: Any, tmp_path: Any, *marks: Mark) -> str:
    worst = WorstInput(
        id="a.png",
        path=desk.picture("a.png", size=(640, 480)),
        reference="1 cat",
        answer="1 dog",
        margin=0.4,
        difference=0.1,
        flipped=True,
        marks=marks,
    )
    desk.report(desk.artifact("degraded", precision="w8a8"), worst=(worst,))
    out = tmp_path / "report.html"
    render_report(ReportRequest(workspace=str(desk.write()), out=str(out)))
    return out.read_text()


def test_boxes_of_both_sides_are_drawn_in_photo_pixels(desk: Any, tmp_path: Any) -> None:
    html = rendered(
        desk,
        tmp_path,
        Mark("reference", (10.0, 20.0, 110.0, 220.5), "cat", 0.91),
        Mark("answer", (12.0, 20.0, 110.0, 220.0), "<dog>", 0.62),
    )
    assert 'viewBox="0 0 640 480"' in html
    rects = re.findall(
        r'<rect class="(reference|answer)" x="([\d.]+)" y="([\d.]+)"'
        r' width="([\d.]+)" height="([\d.]+)">',
        html,
    )
    assert rects == [
        ("reference", "10.0", "20.0", "100.0", "200.5"),
        ("answer", "12.0", "20.0", "98.0", "200.0"),
    ]
    assert "answer: &lt;dog&gt; 0.62" in html
    assert "<dog>" not in html


def test_a_box_that_is_turned_inside_out_has_no_size(desk: Any, tmp_path: Any) -> None:
    html = rendered(desk, tmp_path, Mark("answer", (50.0, 50.0, 10.0, 10.0), "cat", 0.5))
    assert 'width="0.0" height="0.0"' in html


def test_without_boxes_there_is_no_drawing(desk: Any, tmp_path: Any) -> None:
    assert '<rect class="reference"' not in rendered(desk, tmp_path)
