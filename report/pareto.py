"""Size against latency with the agreement of each artifact, and their Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeserve.report.formatting import mebibytes, milliseconds, percent
from edgeserve.report.plotting import COLOURS, Series, canvas, drawing, embed
from edgeserve.types.base import plain

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


#: Sizes and times closer than this share count as equal: another run may swap them.
_EQUAL = 0.05
#: Where labels begin, how far apart they stay, and the room for them, in shares of the plot.
_LABELS, _GAP = 0.66, 0.078


@dataclass(frozen=True)
class Point:
    """Size, time and flip rate of an artifact.

    Attributes:
        name: Of the artifact.
        verdict: Colours it.
        ms: Median run.
        mb: Size, MiB.
        changed: Flip rate of decided answers; None where decisions were not compared.
    """

    name: str
    verdict: str
    ms: float
    mb: float
    changed: float | None


def size_against_latency(series: Sequence[Series], clock: str) -> Markup | None:
    """Each measured artifact by its median run and its size; None for fewer than two.

    Args:
        series: The artifacts.
        clock: "wall" or "CPU".
    """
    points = [point for one in series if (point := _point(one, clock))]
    if len(points) < 2:
        return None
    best = pareto_front(points)
    with drawing():
        figure, axes = canvas(0, 3.5)
        axes.grid(True, axis="both")
        axes.set_xlim(0, max(p.ms for p in points) / (_LABELS - 0.06))
        axes.set_ylim(0, 1.12 * max(p.mb for p in points))
        for point in points:
            _dot(axes, point, ringed=point in best)
        for point, height in _heights(axes, points):
            _label(axes, point, height, bold=point in best)
        axes.set_xticks([t for t in axes.get_xticks() if t <= 1.05 * max(p.ms for p in points)])
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.set_xlabel(f"{clock} time of one run, ms (median)", loc="left")
        axes.set_ylabel("size, MiB")
        costs = [f"{mebibytes(p.mb)}, {milliseconds(p.ms)}, {_same(p)}" for p in points]
        text = "; ".join(f"{p.name}: {cost}" for p, cost in zip(points, costs, strict=True))
        front = ", ".join(p.name for p in best)
        return embed(figure, "plot-cost", "Size against latency", f"{text}. Front: {front}")


def _point(one: Series, clock: str) -> Point | None:
    if one.measurement is None or not one.size_mb:
        return None
    run = one.measurement.run
    decided = one.decisions.decided if one.decisions else None
    changed = plain(decided.rate) if decided and decided.n else None
    time = plain((run.cpu if clock == "CPU" else run.wall).p50)
    return Point(one.name, one.verdict, time, one.size_mb, changed)


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """The Pareto front: points that no other point dominates in size, time and flip rate."""
    usable = [p for p in points if p.verdict in ("pass", "degraded")]
    return [p for p in usable if not any(_dominates(other, p) for other in usable)]


def _dominates(one: Point, other: Point) -> bool:
    """Whether ``one`` is nowhere worse than ``other``, and somewhere better."""
    pairs = ((one.ms, other.ms), (one.mb, other.mb))
    changed = (one.changed or 0.0, other.changed or 0.0)
    no_worse = all(a <= b * (1 + _EQUAL) for a, b in pairs) and changed[0] <= changed[1]
    better = any(a < b * (1 - _EQUAL) for a, b in pairs) or changed[0] < changed[1]
    return no_worse and better


def _same(point: Point) -> str:
    return "tensors only" if point.changed is None else f"{percent(1 - point.changed)} same"


def _dot(axes: Axes, point: Point, *, ringed: bool) -> None:
    at, colour = ([point.ms], [point.mb], "o"), COLOURS[point.verdict]
    if ringed:
        ring: Any = {"mfc": "none", "mec": COLOURS["accent"], "mew": 1.4, "alpha": 0.8}
        axes.plot(*at, ms=15, zorder=2, **ring)
    axes.plot(*at, color=colour, ms=9, mec=COLOURS["card"], mew=1.5, zorder=3)


def _heights(axes: Axes, points: Sequence[Point]) -> list[tuple[Point, float]]:
    """Each point with the height of its label: near its own, and clear of the others."""
    top = axes.get_ylim()[1]
    # Of those at about one height the right one comes first: no line crosses another's dot.
    ordered = sorted(points, key=lambda p: (-round(p.mb / top / _GAP), -p.ms))
    gap = min(_GAP, 0.96 / len(ordered))
    heights: list[float] = []
    for point in ordered:
        ceiling = heights[-1] - gap if heights else 1.0 - gap / 2
        heights.append(min(point.mb / top, ceiling))
    for i in range(len(heights) - 1, -1, -1):  # those that were pushed below the floor move up
        floor = heights[i + 1] + gap if i + 1 < len(heights) else gap / 2
        heights[i] = max(heights[i], floor)
    return list(zip(ordered, heights, strict=True))


def _label(axes: Axes, point: Point, height: float, *, bold: bool) -> None:
    line = {"arrowstyle": "-", "color": COLOURS["line"], "lw": 0.9, "shrinkA": 1, "shrinkB": 6}
    axes.annotate(
        f"{point.name}, {_same(point)}",
        (point.ms, point.mb),
        xytext=(_LABELS, height),
        textcoords="axes fraction",
        va="center",
        fontsize=8.2,
        color=COLOURS["ink" if bold else "muted"],
        fontweight="bold" if bold else "normal",
        arrowprops=line | {"relpos": (0, 0.5)},
    )
