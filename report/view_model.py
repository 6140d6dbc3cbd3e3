"""The values of the report's template: finished texts, figures, and the checks and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeserve.types.artifact import Refused
from edgeserve.types.reports import Check
from edgeserve.types.vocabulary import Verdict

if TYPE_CHECKING:
    from markupsafe import Markup


class Headline(NamedTuple):
    """The headline: a verdict in a sentence, its evidence, and the next action."""

    tone: Verdict
    word: str
    sentence: str
    evidence: str
    then: str = ""


class Tile(NamedTuple):
    """A key figure."""

    label: str
    value: str
    note: str
    tone: str = ""


class MatrixCell(NamedTuple):
    """One artifact in the matrix; unknown figures are empty."""

    verdict: Verdict
    word: str
    meaning: str
    anchor: str
    size: str
    time: str
    same: str


class MatrixRow(NamedTuple):
    """One format: one cell a precision, None where it was not requested."""

    name: str
    engine: str
    cells: tuple[MatrixCell | None, ...]


class Matrix(NamedTuple):
    """Formats against precisions.

    Attributes:
        columns: The precisions.
        rows: The formats.
        clock: "wall" or "CPU": which time is shown.
        same: What is compared: "answers" or "nearest neighbours".
        untimed: Some cells have no time.
    """

    columns: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    clock: str
    same: str
    untimed: bool


class ArtifactRow(NamedTuple):
    """One line of the table of artifacts; every figure in words, "not measured" included."""

    name: str
    anchor: str
    verdict: Verdict
    word: str
    meaning: str
    size: str
    wall: str
    wall_note: str
    cpu: str
    cpu_note: str
    agreement: str
    agreement_note: str
    agreement_count: str
    detectable: str
    difference: str
    difference_note: str
    executed_by: str
    noisy: str = ""
    eight_bit: str = ""


class OverlayBox(NamedTuple):
    """A box to be drawn over a picture, in the photo's own pixels."""

    side: str
    x: float
    y: float
    width: float
    height: float
    title: str


class BoxOverlay(NamedTuple):
    """A photo's size in pixels, and the boxes to be drawn over it."""

    width: int
    height: int
    boxes: tuple[OverlayBox, ...]


class WorstInputRow(NamedTuple):
    """One of the inputs on which artifact and reference differ most."""

    id: str
    picture: str | None
    text: str
    reference: str
    answer: str
    margin: str
    share: float | None
    difference: str
    flipped: bool
    marked: BoxOverlay | None = None


class TimingRow(NamedTuple):
    """One row of a table of times: what, and the same figures for wall and CPU."""

    name: str
    wall: tuple[str, ...]
    cpu: tuple[str, ...]


class Fact(NamedTuple):
    """A name and what is known under it."""

    name: str
    value: str


class Plot(NamedTuple):
    """A drawing with what it shows and how to read it."""

    title: str
    svg: Markup
    caption: str


class Detail(NamedTuple):
    """The details of one artifact."""

    anchor: str
    name: str
    verdict: Verdict
    word: str
    reasons: tuple[Fact, ...]
    checks: tuple[Check, ...]
    outputs: tuple[Fact, ...]
    worst: tuple[WorstInputRow, ...]
    worst_note: str
    costs: tuple[Fact, ...]
    times: tuple[TimingRow, ...]
    noisy: str
    origin: tuple[Fact, ...]
    summary: str = ""
    open: bool = True


class Page(NamedTuple):
    """The whole report."""

    title: str
    about: tuple[Fact, ...]
    headline: Headline
    tiles: tuple[Tile, ...]
    rows: tuple[ArtifactRow, ...]
    refused: tuple[Refused, ...]
    plots: tuple[tuple[Plot, ...], ...]
    details: tuple[Detail, ...]
    compared: tuple[Fact, ...]
    missing: tuple[Fact, ...]
    environment: tuple[Fact, ...]
    decided: str
    matrix: Matrix | None = None
    chart: Plot | None = None
    warnings: tuple[str, ...] = ()
    pictures: int = 0
    texts: int = 0
