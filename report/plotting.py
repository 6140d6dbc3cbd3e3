"""What all plots share: their data, a figure with named rows, and SVG that lives inside a page.

matplotlib writes a document of its own, with literal colours, a date and ids that repeat from
plot to plot. Here plots are drawn in stand-in colours, which become the page's CSS variables, so
that one drawing serves light and dark; unused ids go, used ones get the plot's name; text stays
text. The Pareto plot shows size against latency with the agreement of each artifact.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from edgeserve.report.formatting import clean, mebibytes, milliseconds, percent, shorten
from edgeserve.types.base import plain
from edgeserve.types.reports import DecisionStats, Limits, Measurement, OutputDiff
from edgeserve.types.vocabulary import Verdict

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLOUR_NAMES = (
    "ink muted line card pass degraded fail unproven accent accent-2 pass-bg degraded-bg fail-bg"
    " s1 s2 s3 s4 s5 s6 s7 s8"
)

#: The page's colour names, each with the stand-in that plots are drawn in.
COLOURS = {name: f"#0{i:02x}{i:02x}f" for i, name in enumerate(_COLOUR_NAMES.split(), 1)}

#: What plots look like, as matplotlib's own parameters.
_STYLE: Any = {
    "svg.hashsalt": "edgeserve",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "text.color": COLOURS["ink"],
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), COLOURS["muted"]),
    "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["ink"],
    **dict.fromkeys(("axes.edgecolor", "grid.color"), COLOURS["line"]),
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    **{f"{x}tick.{kind}.size": 0.0 for x in "xy" for kind in ("major", "minor")},
    "grid.linewidth": 0.7,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
}

_STAND_IN = re.compile("|".join(COLOURS.values()))
_VARIABLE = {colour: f"var(--{name})" for name, colour in COLOURS.items()}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with its own defaults, whatever the user's matplotlibrc says, and ours on top."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def embed(figure: Figure, name: str, title: str, description: str) -> Markup:
    """Write a figure as inline SVG (inside `drawing`).

    Args:
        figure: What was drawn.
        name: Prefix for ids, unique on the page.
        title: The picture's name, for a screen reader.
        description: What there is to see, in words.
    """
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    box = re.search(r'viewBox="([0-9. ]+)"', text)
    start, end = text.index('<g id="figure_1">'), text.rindex("</svg>")
    body = _ids(_STAND_IN.sub(lambda m: _VARIABLE[m.group()], text[start:end]), name)
    head = (
        f'<svg viewBox="{box.group(1) if box else ""}" role="img"'
        f' aria-labelledby="{name}-t {name}-d"'
        f' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f'<title id="{name}-t">{escape(clean(title))}</title>'
        f'<desc id="{name}-d">{escape(clean(description))}</desc>'
    )
    return Markup(f"{head}\n{body}</svg>")


def _ids(body: str, name: str) -> str:
    """Drop ids that nothing refers to; prefix the others, and the references, with ``name``."""
    used = set(re.findall(r"""(?:url\(|href=")#([^)"]+)""", body))

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match.group(1)}"' if match.group(1) in used else ""

    body = re.sub(r' id="([^"]*)"', rename, body)
    return re.sub(r"""(url\(|href=")#""", rf"\g<1>#{name}-", body)


_WIDTH = 5.0
_ROW_HEIGHT = 0.42


@dataclass(frozen=True)
class Series:
    """What plots need of one artifact.

    Attributes:
        name: "ONNX fp32".
        verdict: Colours it.
        size_mb: MiB.
        measurement: None where it was not measured.
        decisions: None where decisions were not compared.
        outputs: Differences per output.
        limits: What was allowed.
        by_numbers: The verdict rests on the outputs' numbers, not on the flip rate.
    """

    name: str
    verdict: Verdict
    size_mb: float | None
    measurement: Measurement | None
    decisions: DecisionStats | None
    outputs: tuple[OutputDiff, ...]
    limits: Limits | None
    by_numbers: bool = False


def canvas(rows: int, extra: float = 0.75) -> tuple[Figure, Axes]:
    """A figure with one plot, as high as its rows need, that can only be written as SVG."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, extra + _ROW_HEIGHT * rows))
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """One row a name, the first on top."""
    axes.set_yticks(range(len(names)), [shorten(n, 24) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)


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
