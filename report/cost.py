"""Plots of cost: the distribution of run times, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.report.series import Series, canvas, name_rows
from edgeserve.report.svg import COLOURS, drawing, embed
from edgeserve.report.words import milliseconds, shorten
from edgeserve.types.base import plain
from edgeserve.types.reports import Measurement

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["latency", "split", "step_order"]

#: Steps in the order in which they run; a split read from JSON has lost it.
_ORDER = (
    "decode",
    "resize",
    "center_crop",
    "normalize",
    "layout",
    "dtype",
    "batch",
    "run",
    "softmax",
    "top_k",
    "finish",
)


def step_order(step: str) -> tuple[int, str]:
    """Sort key of steps: in the order in which they run, unknown ones between, the total last."""
    first = step.partition("+")[0]  # fused steps are called "normalize+layout"
    place = _ORDER.index(first) if first in _ORDER else _ORDER.index("batch")
    return (len(_ORDER) if step == "total" else place), step


def latency(series: Sequence[Series]) -> Markup | None:
    """Distribution of run times, wall filled and CPU as a line; percentiles marked."""
    shown = [(s, s.measurement) for s in series if s.measurement]
    if not shown:
        return None
    with drawing():
        figure, axes = canvas(len(shown), 0.85)
        figure.set_figheight(0.85 + 0.8 * len(shown))
        right = max(_right(m) for _, m in shown)
        left = 0.92 * min(_left(m) for _, m in shown)
        for row, (_, measured) in enumerate(shown):
            _hill(axes, row, measured.cpu_ms, (left, right), wall=False)
            _hill(axes, row, measured.wall_ms, (left, right), wall=True)
            _marks(axes, row, measured)
        name_rows(axes, [s.name for s, _ in shown])
        axes.set_ylim(len(shown) - 0.7, -0.95)
        axes.set_xlim(left, right)
        axes.set_xlabel("ms a run: wall time filled, CPU time as a line")
        said = "; ".join(
            f"{s.name}: median {milliseconds(m.run.wall.p50)}, 90th percentile "
            f"{milliseconds(m.run.wall.p90)}, 99th {milliseconds(m.run.wall.p99)}, "
            f"{m.run.wall.n} runs"
            for s, m in shown
        )
        return embed(figure, "plot-latency", "Distribution of run times", said)


def _right(m: Measurement) -> float:
    return 1.06 * max(plain(m.run.wall.p99), plain(m.run.cpu.p50), 1e-6)


def _left(m: Measurement) -> float:
    return min(plain(m.run.wall.min), plain(m.run.cpu.min))


def _hill(
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


def _marks(axes: Axes, row: int, measured: Measurement) -> None:
    wall = measured.run.wall
    axes.plot(
        [plain(wall.min), plain(wall.p99)], [row, row], color=COLOURS["muted"], lw=1.0, zorder=0
    )
    for figure, size in ((wall.p50, 9), (wall.p90, 6), (wall.p99, 4)):
        axes.plot([plain(figure)], [row], "|", color=COLOURS["ink"], ms=size, mew=1.3)
    axes.annotate(
        milliseconds(wall.p50),
        (plain(wall.p50), row),
        xytext=(0, -12),
        textcoords="offset points",
        ha="center",
        fontsize=8,
        color=COLOURS["ink"],
    )


def split(series: Sequence[Series]) -> Markup | None:
    """Where the time from raw input to decision goes, one bar an artifact."""
    shown = [(s, s.measurement.split) for s in series if s.measurement and s.measurement.split]
    if not shown:
        return None
    steps = sorted(
        {step for _, parts in shown for step in parts if step != "total"}, key=step_order
    )
    with drawing():
        figure, axes = canvas(len(shown), 1.2)
        said = []
        for row, (one, parts) in enumerate(shown):
            left = 0.0
            for step in [s for s in steps if s in parts]:
                width = plain(parts[step].wall.p50)
                axes.barh(row, width, left=left, height=0.55, color=_colour(step), lw=0)
                said.append(f"{one.name} {step}: {milliseconds(width)}")
                left += width
        _legend(axes, steps)
        name_rows(axes, [s.name for s, _ in shown])
        axes.set_xlabel("ms from raw input to decision, median of each step (wall)")
        return embed(figure, "plot-split", "Time per step", "; ".join(said))


def _colour(step: str) -> str:
    """The same step has the same colour in every report."""
    first = step.partition("+")[0]
    return COLOURS[f"s{_ORDER.index(first) % 8 + 1}"] if first in _ORDER else COLOURS["muted"]


def _legend(axes: Axes, steps: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    columns = min(4, len(steps))
    rows = range(-(-len(steps) // columns))
    # matplotlib fills a legend column by column; steps are read row by row
    places = [row * columns + column for column in range(columns) for row in rows]
    handles = [
        Patch(color=_colour(steps[i]), label=shorten(steps[i], 16), lw=0)
        for i in places
        if i < len(steps)
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        handlelength=0.8,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0.2,
    )
