"""Several formats and precisions on one page: the matrix, the front, the picks."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.report.load import load_workspace
from edgeserve.report.overview import matrix
from edgeserve.report.plotting import Point, pareto_front
from edgeserve.report.summary import headline
from edgeserve.types.reports import EmbeddingStats, WorstInput

Show = Callable[[Any], Any]


def words(page: Any) -> str:
    return str(page.text).replace("\u00a0", " ")


def test_every_cell_says_what_is_known(grid: Any) -> None:
    shown = matrix(load_workspace(grid.root))
    assert shown is not None
    assert shown.columns == ("fp32", "fp16", "w8", "w8a8")
    assert [row.name for row in shown.rows] == ["ONNX", "LiteRT", "Core ML"]
    cells = {
        (row.name, precision): cell
        for row in shown.rows
        for precision, cell in zip(shown.columns, row.cells, strict=True)
    }
    assert cells["Core ML", "w8a8"] is None
    said = {key: cell.word for key, cell in cells.items() if cell}
    assert said["ONNX", "fp32"] == "Pass"
    assert said["ONNX", "w8a8"] == "Degraded"
    assert said["LiteRT", "w8a8"] == "Fail"
    assert said["Core ML", "w8"] == "Not run here"
    first = cells["ONNX", "w8a8"]
    assert first is not None
    assert (first.size, first.time) == ("5.0\u00a0MiB", "4.7\u00a0ms")
    assert first.same == "97.9\u00a0% same"  # 380 of 388
    assert cells["Core ML", "fp32"].time == ""  # type: ignore[union-attr]
    assert shown.rows[2].engine == "interpreter 1 (torch), fp16 rounding, not on Apple hardware"
    assert (shown.clock, shown.same) == ("wall", "answers")


def test_one_artifact_needs_no_matrix_and_no_plot_of_one_mark(desk: Any, show: Show) -> None:
    made = desk.artifact()
    desk.report(made)
    desk.measure(made)
    assert matrix(load_workspace(desk.write())) is None
    page = show(desk)
    titles = re.findall(
        r"plot-\w+", " ".join(a.get("aria-labelledby", "") for a in page.find("svg"))
    )
    assert set(titles) == {"plot-latency", "plot-split"}
    assert "Formats and precisions" not in page.text


def test_the_first_screen_speaks_for_all(grid: Any, show: Show) -> None:
    said = headline(load_workspace(grid.root))
    assert said.sentence == "6 of 11 conversions match its PyTorch source."
    assert said.then == "3 are degraded, Core ML w8 was not run here and 1 was rejected."
    page = words(show(grid))
    for told in (
        "Smallest that passes 9.0 MiB",
        " fp16, 50 % of its fp32",
        "Fastest that passes 9.1 ms LiteRT fp32, wall time, 1 thread",
        "Fastest degraded 4.7 ms ONNX w8a8, flips 2.1 %",
        "Detectable flip rate 0.96 %",
        "97 % of weights in 8 bits",
        "not requested",
        "Not run here",
        "Core ML w8: no runtime for it on this machine",
        "ran on interpreter 1 (torch); fp16 rounding; not on Apple hardware",
    ):
        assert told in page, told
    for stale in ("sure", "groups"):
        assert not re.search(rf"\b{stale}\b", page), stale


def test_all_conversions_are_not_some_of_them(desk: Any) -> None:
    for precision in ("fp32", "fp16", "w8"):
        desk.report(desk.artifact(precision=precision))
    assert headline(load_workspace(desk.write())).sentence.startswith("All 3 conversions match ")


def test_folded_details_open_by_their_links(grid: Any, show: Show) -> None:
    """The id that a link names lies inside what is folded up, which browsers open for it."""
    page = show(grid)
    folded = [a for a in page.find("details") if "open" not in a]
    assert len(folded) == 6, "what passes without remark"
    assert len(page.find("details")) == 11
    ids = {a["id"] for tag, a in page.elements if tag == "div" and "id" in a}
    links = {a["href"][1:] for a in page.find("a") if a.get("class") == "cell"}
    assert links <= ids | {"refused"}
    assert "a-onnx-fp32" in links


def test_texts_are_shown_with_both_neighbours(desk: Any, show: Show, figures: Any) -> None:
    vectors = EmbeddingStats(cosine_mean=0.99961, cosine_min=0.99, rank=0.9987)
    stats = msgspec.structs.replace(
        figures.decisions(8), task="feature-extraction", top5=None, embedding=vectors
    )
    worst = WorstInput(
        id="line 7",
        path=None,
        text="Close the door, please.",
        reference="“Shut the door.” 0.71",
        answer="“Open the door.” 0.70",
        margin=0.02,
        difference=0.1,
        flipped=True,
    )
    for precision in ("w8", "w8a8"):
        desk.report(desk.artifact("degraded", precision=precision), decisions=stats, worst=(worst,))
    desk.write()
    page = show(desk)
    said = words(page)
    assert "Close the door, please." in said
    assert "“Shut the door.” 0.71" in said
    assert "“Open the door.” 0.70 (flipped)" in said
    assert "This file contains 2 texts from the validation data" in said
    assert "cosine similarity to the reference: mean 0.99961, minimum 0.99000" in said
    assert "with the reference: 0.99870" in said
    assert "the second by a cosine of at least 0.01" in said
    assert "decided nearest neighbours" in said
    assert page.tags["img"] == 0


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3)), max_size=9))
@settings(deadline=None)
def test_the_front_is_what_nothing_beats(figures: list[tuple[int, int, int]]) -> None:
    points = [
        Point(str(i), "pass", float(ms), float(mb), changed / 10)
        for i, (ms, mb, changed) in enumerate(figures)
    ]
    found = {p.name for p in pareto_front(points)}
    table = np.array(figures).reshape(-1, 3)
    for i, row in enumerate(table):
        beaten = bool(((table <= row).all(axis=1) & (table < row).any(axis=1)).any())
        assert (str(i) in found) == (not beaten)


@pytest.mark.parametrize(("verdict", "inside"), [("degraded", True), ("unproven", False)])
def test_only_what_may_be_used_is_on_the_front(verdict: str, inside: bool) -> None:
    points = [Point("a", verdict, 1.0, 1.0, 0.0), Point("b", "pass", 2.0, 2.0, 0.0)]
    assert ([p.name for p in pareto_front(points)] == ["a"]) == inside


def test_what_is_nearly_equal_beats_nothing() -> None:
    near = [Point("a", "pass", 10.0, 5.0, 0.0), Point("b", "pass", 10.3, 5.1, 0.0)]
    assert pareto_front(near) == near
    assert [p.name for p in pareto_front([*near, Point("c", "pass", 9.0, 5.0, 0.0)])] == ["c"]


def test_labels_of_crowded_points_do_not_cover_each_other(desk: Any, show: Show) -> None:
    """Eight artifacts of one size and time: eight labels, each on a line of its own."""
    formats, precisions = ("onnx", "tflite"), ("fp32", "fp16", "w8", "w8a8")
    for format, precision in product(formats, precisions):
        made = desk.artifact(format=format, precision=precision)
        desk.report(made)
        desk.measure(made)
    desk.write()
    from edgeserve.report.html import build_page
    from edgeserve.report.thumbnails import Thumbnails

    chart = build_page(load_workspace(desk.root), Thumbnails(desk.root)).chart
    assert chart is not None
    texts = re.findall(
        r"<text[^>]*translate\(([\d.]+) ([\d.]+)\)[^>]*>(?=[^<]*same)", str(chart.svg)
    )
    texts = texts or re.findall(r'<text[^>]*y="([\d.]+)"()[^>]*>[^<]*same', str(chart.svg))
    heights = sorted(float(y or x) for x, y in texts)
    assert len(heights) == 8
    assert min(np.diff(heights)) > 8, "lower than a line of text"
