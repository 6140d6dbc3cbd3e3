"""Plots of harm: changed answers with their bounds, and differences per output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.report.series import Series, canvas, name_rows
from edgeserve.report.svg import COLOURS, drawing, embed
from edgeserve.report.words import field_name, listed, percent, scientific
from edgeserve.types.base import plain
from edgeserve.types.reports import OutputDiff

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["bounds", "differences"]

#: Fields that fit into one drawing.
_ROWS = 24
_Apart = tuple[Series, OutputDiff, float]


def bounds(series: Sequence[Series]) -> Markup | None:
    """Share of changed decisions with 95 % bounds, over the zones of the verdicts.

    None for a single artifact: its figures stand above.
    """
    shown = [s for s in series if s.limits and s.decisions and s.decisions.decided.n]
    if len(shown) < 2:
        return None
    limits = shown[0].limits
    assert limits is not None
    top = 100 * min(1.0, max(1.15 * limits.degraded_flips, *(1.08 * _upper(s) for s in shown)))
    with drawing():
        figure, axes = canvas(len(shown), 1.0)
        edges = (0.0, 100 * limits.pass_flips, 100 * limits.degraded_flips, max(top, 1e-9))
        for zone, low, high in zip(("pass", "degraded", "fail"), edges, edges[1:], strict=False):
            axes.axvspan(low, max(low, high), color=COLOURS[f"{zone}-bg"], lw=0)
        for row, one in enumerate(shown):
            _interval(axes, row, one)
        name_rows(axes, [s.name for s in shown])
        axes.set_xlim(-0.015 * top, top)
        axes.set_xlabel("changed answers, % of the clear ones")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        _zone_names(axes, edges)
        said = "; ".join(
            f"{s.name}: {percent(s.decisions.decided.rate)} changed, between "
            f"{percent(s.decisions.decided.lower)} and {percent(s.decisions.decided.upper)}"
            for s in shown
            if s.decisions
        )
        return embed(figure, "plot-bounds", "Changed answers with their bounds", said)


def _upper(one: Series) -> float:
    return plain(one.decisions.decided.upper) if one.decisions else math.nan


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
    words = (("pass", "pass"), ("degraded", "degraded"), ("refused", "fail"))
    for (word, zone), low, high in zip(words, edges, edges[1:], strict=False):
        if high - low > 0.06 * edges[-1]:
            axes.text(
                (low + high) / 2,
                1.02,
                word,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                color=COLOURS[zone],
                fontsize=8,
            )


def _furthest(rows: list[_Apart]) -> list[_Apart]:
    """Where there are too many to draw, those furthest off, in their own order."""
    least = sorted((value for *_, value in rows), reverse=True)[:_ROWS][-1:] or [0.0]
    return [row for row in rows if row[-1] >= least[0]][:_ROWS]


def _row_name(one: Series, output: OutputDiff, several: bool) -> str:
    what = output.field if output.part else output.output
    return f"{one.name} · {what}" if several else what


def differences(series: Sequence[Series]) -> Markup | None:
    """Largest difference of each output relative to its scale, against the limit, on a log axis.

    None for a single one.
    """
    rows = _furthest(
        [
            (s, o, max(plain(o.relative), 1e-9))
            for s in series
            for o in s.outputs
            if math.isfinite(plain(o.relative))
        ]
    )
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
            axes.annotate(
                scientific(value),
                (value, row),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=COLOURS["ink"],
            )
        for limit in limits:
            axes.axvline(limit, color=COLOURS["fail"], lw=1.4, ls=(0, (4, 3)))
            axes.text(
                limit,
                1.02,
                "limit",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=8,
                color=COLOURS["fail"],
            )
        several = len({s.name for s, _, _ in rows}) > 1
        name_rows(axes, [_row_name(s, o, several) for s, o, _ in rows])
        axes.xaxis.set_major_formatter(lambda x, _: scientific(x))
        axes.minorticks_off()
        axes.set_xlabel("largest difference, relative to the output's scale")
        said = listed([f"{s.name} {field_name(o)}: {scientific(v)}" for s, o, v in rows])
        return embed(figure, "plot-outputs", "Difference of each output against the limit", said)
