"""The report as a page: well formed, self-contained, accessible, the same every time, and safe."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeserve.report import ReportRequest
from edgeserve.report.html import render_report
from edgeserve.types.artifact import Reason
from edgeserve.types.reports import Check, WorstInput

Show = Callable[[Any], Any]

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&lt;\u202e{{ 7*7 }}$\\alpha$]]>"


def render(desk: Any, out: Path) -> bytes:
    render_report(ReportRequest(workspace=str(desk.root), out=str(out)))
    return out.read_bytes()


def test_a_full_report_shows_everything_that_was_found(full: Any, show: Show) -> None:
    page = show(full)
    for said in (
        "ONNX fp32 matches its PyTorch source.",
        "412 of 412 inputs",
        "flips ≤ 3.7 % (limit 2 %)",  # 8/388 + 1.96 * sqrt(p (1 - p) / 310.2) = 3.64 %
        "Largest difference",
        "Egyptian cat 0.41",
        "tabby 0.44 (flipped)",
        "EDGE-CHECK-004",
        "keep the last layer in float",
        "failed/onnx-w8",
        "onnxruntime 1.32.0 (cpu)",
        "avx512_vnni",
        "Linux 6.1.0",
        "half of the runs had to wait",
        "declared, not compared",
        "not-constant",
        "failed",
        "18.0 MiB",
        "5.0 MiB",
        "Share it with care",
    ):
        assert said in page.text.replace("\u00a0", " "), said


def test_the_bound_shown_is_not_kinder_than_the_figure(full: Any, show: Show) -> None:
    shown = re.search(r"flips \u2264 (3\.\d+)", show(full).text)
    assert shown is not None
    share, n_eff = 8 / 388, 0.94 * 330
    assert float(shown.group(1)) >= 100 * (share + 1.96 * (share * (1 - share) / n_eff) ** 0.5)


def test_noisy_wall_times_are_not_shown_as_the_figure(desk: Any, show: Show) -> None:
    made = desk.artifact()
    desk.report(made)
    desk.measure(made, wait=3.0, noisy="half of the runs had to wait")
    desk.write()
    page = show(desk)
    assert "Median run, CPU time" in page.text
    assert "are unreliable: half of the runs had to wait." in page.text


def test_it_needs_nothing_but_itself(full: Any, tmp_path: Path) -> None:
    html = render(full, tmp_path / "r.html").decode()
    assert set(re.findall(r"""https?://[^"'\s<)]+""", html)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for sign in ("<script", "<link", "<iframe", "@import", "javascript:", "<base"):
        assert sign not in html
    assert not re.search(r"url\((?!#)", html)
    assert "default-src 'none'" in html


def test_ids_are_unique_and_every_link_leads_somewhere(full: Any, show: Show) -> None:
    page = show(full)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.find("a")] + [a["xlink:href"] for a in page.find("use")]
    assert links
    assert {link for link in links if not link.startswith("#")} == set()
    assert {link[1:] for link in links} <= set(ids)
    clips = {m for _, a in page.elements for m in re.findall(r"url\(#([^)]+)\)", str(a))}
    assert clips <= set(ids)


def test_it_can_be_read_without_seeing_it(full: Any, show: Show) -> None:
    page = show(full)
    assert page.elements[0] == ("html", {"lang": "en"})
    assert page.tags["h1"] == page.tags["main"] == page.tags["title"] - page.tags["figure"] == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(a["alt"] for a in page.find("img"))
    assert all(a["scope"] in ("col", "row") for a in page.find("th"))
    drawings = [a for a in page.find("svg") if "role" in a]
    assert len(drawings) == page.tags["figure"] == 5
    named = {a["id"] for tag in ("title", "desc") for a in page.find(tag) if "id" in a}
    assert {i for a in drawings for i in a["aria-labelledby"].split()} == named
    for section in page.find("section"):
        assert section["aria-labelledby"] in {a.get("id") for _, a in page.elements}


def test_the_same_workspace_gives_the_same_bytes(full: Any, tmp_path: Path) -> None:
    first = render(full, tmp_path / "a.html")
    code = (
        "import sys; from edgeserve.report.html import render_report;"
        "from edgeserve.report.request import ReportRequest;"
        "render_report(ReportRequest(workspace=sys.argv[1], out=sys.argv[2]))"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(full.root), str(tmp_path / "b.html")],
        check=True,
        env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path), "TZ": "Asia/Tokyo"},
    )
    assert (tmp_path / "b.html").read_bytes() == first


def test_a_matplotlibrc_of_the_users_changes_nothing(
    full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    first = render(full, tmp_path / "a.html")
    with matplotlib.rc_context({"font.size": 30.0, "svg.fonttype": "path", "axes.grid": False}):
        assert render(full, tmp_path / "b.html") == first


def test_hostile_words_stay_words(desk: Any, show: Show, figures: Any) -> None:
    plain = _told(desk, "harmless", figures)
    before = show(plain).tags
    page = show(_told(desk, HOSTILE, figures))
    assert page.tags == before
    assert page.tags["script"] == 0
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert "\u202e" not in page.text


def _told(desk: Any, words: str, figures: Any) -> Any:
    """A workspace in which every free string holds ``words``."""
    desk.artifacts.clear()
    desk.refused.clear()
    worst = WorstInput(
        id=words,
        path=desk.picture("x.png"),
        reference=words,
        answer=words,
        margin=0.1,
        difference=0.2,
        flipped=True,
    )
    text = msgspec.structs.replace(worst, path=None, text=words)
    reason = Reason(words, words)
    made = desk.artifact("degraded", precision="w8a8", reasons=(reason,))
    made = msgspec.structs.replace(
        made,
        provenance=msgspec.structs.replace(
            made.provenance, route=words, rewrites=(words,), tools={words: words}
        ),
        judgement=msgspec.structs.replace(made.judgement, executed_by=f"{words}; {words}"),
    )
    desk.artifacts[:] = [made]
    found = desk.report(made)
    environment = msgspec.structs.replace(
        found.environment,
        machine=words,
        processor=words,
        system=words,
        python=words,
        packages={words: words},
        features=(words,),
    )
    runtime = msgspec.structs.replace(found.runtime, name=words, version=words, delegate=words)
    desk.report(
        made,
        worst=(worst, text),
        checks=(Check(words, False, words, 1.0, 2.0),),
        reference=words,
        preprocessing=words,
        inputs=words,
        environment=environment,
        runtime=runtime,
        outputs=figures.outputs(0.1, words),
        generated=figures.outputs(0.2, words),
        notes=(words,),
    )
    measured = desk.measure(made)
    desk.measure(
        made,
        noisy=words,
        input=words,
        notes=(words,),
        environment=environment,
        runtime=runtime,
        split={words: measured.split["run"]},
    )
    desk.refuse("w8", code=words, message=words, hint=words, path="failed/x")
    desk.write(reference=words, license=words)
    return desk


def _css() -> str:
    return (resources.files("edgeserve.report") / "templates" / "report.css").read_text("utf-8")


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_words_stand_out_from_their_ground(theme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", _css(), re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    pairs = [(ink, ground) for ink in ("ink", "muted", "accent") for ground in ("card", "bg")]
    for tone in ("pass", "degraded", "fail", "unproven"):
        pairs += [(tone, f"{tone}-bg"), (tone, "card"), ("ink", f"{tone}-bg")]
    for ink, ground in pairs:
        light, dark = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_every_colour_that_is_used_is_defined(full: Any, tmp_path: Path) -> None:
    html = render(full, tmp_path / "r.html").decode()
    defined = set(re.findall(r"--([\w-]+):", _css()))
    assert set(re.findall(r"var\(--([\w-]+)\)", html)) <= defined
    assert not re.search(r"#0[0-9a-f]{4}f\b", html), "a stand-in colour was left in a plot"
