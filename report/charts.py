"""The report's plots: run times, time per step, flips with their bounds, differences per output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from edgeserve.report.formatting import (
    field_name,
    join_phrase,
    milliseconds,
    percent,
    scientific,
    shorten,
)
from edgeserve.report.plotting import COLOURS, Series, canvas, drawing, embed, name_rows
from edgeserve.types.base import plain
from edgeserve.types.reports import Measurement, OutputDiff

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


#: Steps in the order in which they run; a split read from JSON has lost it.
_STEP_ORDER = tuple(
    "decode resize center_crop normalize layout dtype batch run softmax top_k finish".split()
)


def step_order(step: str) -> tuple[int, str]:
    """Sort key of steps: in the order in which they run, unknown ones between, the total last."""
    first = step.partition("+")[0]  # fused steps are called "normalize+layout"
    place = _STEP_ORDER.index(first) if first in _STEP_ORDER else _STEP_ORDER.index("batch")
    return (len(_STEP_ORDER) if step == "total" else place), step


def latency_histograms(series: Sequence[Series]) -> Markup | None:
    """Distribution of run times, wall filled and CPU as a line; percentiles marked."""
    shown = [(s, s.measurement) for s in series if s.measurement]
    if not shown:
        return None
    with drawing():
        figure, axes = canvas(len(shown), 0.85)
        figure.set_figheight(0.85 + 0.8 * len(shown))
        timings = [m.run for _, m in shown]
        right = 1.06 * max(1e-6, *(max(plain(t.wall.p99), plain(t.cpu.p50)) for t in timings))
        left = 0.92 * min(min(plain(t.wall.min), plain(t.cpu.min)) for t in timings)
        for row, (_, measured) in enumerate(shown):
            _histogram(axes, row, measured.cpu_ms, (left, right), wall=False)
            _histogram(axes, row, measured.wall_ms, (left, right), wall=True)
            _percentiles(axes, row, measured)
        name_rows(axes, [s.name for s, _ in shown])
        axes.set_ylim(len(shown) - 0.7, -0.95)
        axes.set_xlim(left, right)
        axes.set_xlabel("ms a run: wall time filled, CPU time as a line")
        text = "; ".join(
            f"{s.name}: median {milliseconds(m.run.wall.p50)}, 90th percentile "
            f"{milliseconds(m.run.wall.p90)}, 99th {milliseconds(m.run.wall.p99)}, "
            f"{m.run.wall.n} runs"
            for s, m in shown
        )
        return embed(figure, "plot-latency", "Distribution of run times", text)


def _histogram(
    axes: Axes, row: int, times: Sequence[float], span: tuple[float, float], *, wall: bool
) -> None:
    """A histogram of at most 48 bins, its top at 0.75 of a row."""
    import numpy as np

    if len(times) < 8:
        return
    counts, edges = np.histogram(times, bins=48, range=span)
    heights = row - 0.75 * counts / max(1, counts.max())
    x, y = np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)
    if wall:
        axes.fill_between(x, row, y, color=COLOURS["accent"], alpha=0.35, lw=0)
    axes.plot(x, y, color=COLOURS["accent" if wall else "accent-2"], lw=1.0)


def _percentiles(axes: Axes, row: int, measured: Measurement) -> None:
    wall = measured.run.wall
    ends = [plain(wall.min), plain(wall.p99)]
    axes.plot(ends, [row, row], color=COLOURS["muted"], lw=1.0, zorder=0)
    for figure, size in ((wall.p50, 9), (wall.p90, 6), (wall.p99, 4)):
        axes.plot([plain(figure)], [row], "|", color=COLOURS["ink"], ms=size, mew=1.3)
    _beside(axes, milliseconds(wall.p50), (plain(wall.p50), row), (0, -12), ha="center")


def _beside(
    axes: Axes, text: str, at: tuple[float, float], by: tuple[float, float], **align: Any
) -> None:
    """Write a figure next to its mark, ``by`` so many points from it."""
    ink = COLOURS["ink"]
    axes.annotate(text, at, by, textcoords="offset points", fontsize=8, color=ink, **align)


def _above(axes: Axes, text: str, x: float, colour: str) -> None:
    """Write over the plot, at ``x``."""
    place: Any = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    axes.text(x, 1.02, text, color=COLOURS[colour], fontsize=8, **place)


def step_bars(series: Sequence[Series]) -> Markup | None:
    """Where the time from raw input to decision goes, one bar an artifact."""
    shown = [(s, s.measurement.split) for s in series if s.measurement and s.measurement.split]
    if not shown:
        return None
    steps = sorted({step for _, split in shown for step in split} - {"total"}, key=step_order)
    with drawing():
        figure, axes = canvas(len(shown), 1.2)
        parts = []
        for row, (one, split) in enumerate(shown):
            left = 0.0
            for step in [s for s in steps if s in split]:
                width = plain(split[step].wall.p50)
                axes.barh(row, width, left=left, height=0.55, color=_colour(step), lw=0)
                parts.append(f"{one.name} {step}: {milliseconds(width)}")
                left += width
        _legend(axes, steps)
        name_rows(axes, [s.name for s, _ in shown])
        axes.set_xlabel("ms from raw input to decision, median of each step (wall)")
        return embed(figure, "plot-split", "Time per step", "; ".join(parts))


def _colour(step: str) -> str:
    """The same step has the same colour in every report."""
    first = step.partition("+")[0]
    known = first in _STEP_ORDER
    return COLOURS[f"s{_STEP_ORDER.index(first) % 8 + 1}" if known else "muted"]


def _legend(axes: Axes, steps: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    columns = min(4, len(steps))
    rows = range(-(-len(steps) // columns))
    # matplotlib fills a legend column by column; steps are read row by row
    places = [row * columns + column for column in range(columns) for row in rows]
    ordered = [steps[i] for i in places if i < len(steps)]
    handles = [Patch(color=_colour(step), label=shorten(step, 16), lw=0) for step in ordered]
    spacing: Any = {"handlelength": 0.8, "handletextpad": 0.4, "columnspacing": 1.2}
    place: Any = {"bbox_to_anchor": (0, 1.0), "ncols": columns, "borderpad": 0.2}
    axes.legend(handles=handles, loc="lower left", **place, **spacing)


#: Fields that fit into one drawing.
_MAX_ROWS = 24
#: Verdicts that a flip rate may lead to, from the least rate up.
_ZONES = ("pass", "degraded", "fail")
_OutputPoint = tuple[Series, OutputDiff, float]


def flip_bounds(series: Sequence[Series]) -> Markup | None:
    """Flip rate with 95 % bounds, over the zones of the verdicts; None for a single artifact."""
    shown = [s for s in series if s.limits and s.decisions and s.decisions.decided.n]
    if len(shown) < 2:
        return None
    limits = shown[0].limits
    assert limits is not None
    uppers = [plain(s.decisions.decided.upper) for s in shown if s.decisions]
    top = 100 * min(1.0, max(1.15 * limits.degraded_flips, *(1.08 * upper for upper in uppers)))
    with drawing():
        figure, axes = canvas(len(shown), 1.0)
        edges = (0.0, 100 * limits.pass_flips, 100 * limits.degraded_flips, max(top, 1e-9))
        for zone, (low, high) in zip(_ZONES, pairwise(edges), strict=True):
            axes.axvspan(low, max(low, high), color=COLOURS[f"{zone}-bg"], lw=0)
        for row, one in enumerate(shown):
            _interval(axes, row, one)
        name_rows(axes, [s.name for s in shown])
        axes.set_xlim(-0.015 * top, top)
        axes.set_xlabel("flips, % of decided answers")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        _zone_names(axes, edges)
        text = "; ".join(
            f"{s.name}: {percent(s.decisions.decided.rate)} flipped, 95 % bounds "
            f"{percent(s.decisions.decided.lower)} and {percent(s.decisions.decided.upper)}"
            for s in shown
            if s.decisions
        )
        return embed(figure, "plot-bounds", "Flip rate with its bounds", text)


def _interval(axes: Axes, row: int, one: Series) -> None:
    assert one.decisions is not None
    rate, raw = one.decisions.decided, one.decisions.raw
    colour = COLOURS[one.verdict]
    low, mid, high = (100 * plain(v) for v in (rate.lower, rate.rate, rate.upper))
    pale = 0.35 if one.by_numbers else 1.0
    axes.plot([low, high], [row, row], color=colour, lw=3.2, solid_capstyle="round", alpha=pale)
    axes.plot([mid], [row], "o", color=colour, ms=7, mec=COLOURS["card"], mew=1.2)
    axes.plot([100 * plain(raw.rate)], [row + 0.22], "D", color=COLOURS["muted"], ms=3, alpha=0.8)


def _zone_names(axes: Axes, edges: Sequence[float]) -> None:
    for zone, (low, high) in zip(_ZONES, pairwise(edges), strict=True):
        if high - low > 0.06 * edges[-1]:
            _above(axes, zone, (low + high) / 2, zone)


def _largest(rows: list[_OutputPoint]) -> list[_OutputPoint]:
    """Where there are too many to draw, those furthest off, in their own order."""
    least = sorted((value for *_, value in rows), reverse=True)[:_MAX_ROWS][-1:] or [0.0]
    return [row for row in rows if row[-1] >= least[0]][:_MAX_ROWS]


def _row_name(one: Series, output: OutputDiff, several: bool) -> str:
    what = output.field if output.part else output.output
    return f"{one.name} · {what}" if several else what


def output_differences(series: Sequence[Series]) -> Markup | None:
    """Largest relative difference of each output against the limit; None for a single output."""
    found = [(s, o, plain(o.relative)) for s in series for o in s.outputs]
    rows = _largest([(s, o, max(value, 1e-9)) for s, o, value in found if math.isfinite(value)])
    limits = {s.limits.tensor for s, _, _ in rows if s.limits}
    if len(rows) < 2 or not limits:
        return None
    with drawing():
        figure, axes = canvas(len(rows), 0.9)
        low = 10 ** math.floor(math.log10(min(min(v for *_, v in rows), *limits)) - 0.2)
        high = 10 ** math.ceil(math.log10(max(max(v for *_, v in rows), *limits)) + 0.2)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        for row, (one, _, value) in enumerate(rows):
            axes.plot([low, value], [row, row], color=COLOURS["line"], lw=1.4)
            axes.plot([value], [row], "o", color=COLOURS[one.verdict], ms=7)
            _beside(axes, scientific(value), (value, row), (7, 0), va="center")
        for limit in limits:
            axes.axvline(limit, color=COLOURS["fail"], lw=1.4, ls=(0, (4, 3)))
            _above(axes, "limit", limit, "fail")
        several = len({s.name for s, _, _ in rows}) > 1
        name_rows(axes, [_row_name(s, o, several) for s, o, _ in rows])
        axes.xaxis.set_major_formatter(lambda x, _: scientific(x))
        axes.minorticks_off()
        axes.set_xlabel("largest difference, relative to the output's scale")
        text = join_phrase([f"{s.name} {field_name(o)}: {scientific(v)}" for s, o, v in rows])
        return embed(figure, "plot-outputs", "Difference of each output against the limit", text)
