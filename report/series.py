"""What the plots need of one artifact, and the rows they are drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeserve.report.words import shorten
from edgeserve.types.reports import DecisionStats, Limits, Measurement, OutputDiff
from edgeserve.types.words import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Series", "canvas", "name_rows"]

_WIDTH = 5.0
_ROW = 0.42


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
        by_numbers: The verdict rests on the outputs' numbers, not on the share of changed answers.
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

    figure = Figure(figsize=(_WIDTH, extra + _ROW * rows))
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """One row a name, the first on top."""
    axes.set_yticks(range(len(names)), [shorten(n, 24) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
