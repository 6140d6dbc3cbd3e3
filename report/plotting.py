"""What all plots share: their data, a figure with named rows, and SVG that lives inside a page.

matplotlib writes a document of its own, with literal colours, a date and ids that repeat from
plot to plot. Here plots are drawn in stand-in colours, which become the page's CSS variables, so
that one drawing serves light and dark; unused ids go, used ones get the plot's name; text stays
text.
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

from edgeserve.report.formatting import clean, shorten
from edgeserve.types.reports import DecisionStats, Limits, Measurement, OutputDiff
from edgeserve.types.vocabulary import Verdict

if TYPE_CHECKING:
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
