"""Formats against precisions on one screen: each cell a verdict in colour, a size and a time."""

from __future__ import annotations

from edgeserve.report.load import Loaded
from edgeserve.report.page import Cell, Matrix, MatrixRow
from edgeserve.report.story import not_run_here
from edgeserve.report.words import (
    FORMAT_NAMES,
    VERDICT_MEANING,
    VERDICT_WORD,
    clean,
    mebibytes,
    milliseconds,
    percent,
    scientific,
)
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import plain
from edgeserve.types.reports import Report
from edgeserve.types.words import FORMATS, PRECISIONS

__all__ = ["clock", "matrix"]

_MB = 1024.0 * 1024.0


def clock(loaded: Loaded) -> str:
    """Which clock all times are told by: one noisy wall clock makes all of them incomparable."""
    noisy = any(m.noisy for some in loaded.measurements.values() for m in some)
    return "CPU" if noisy else "wall"


def matrix(loaded: Loaded) -> Matrix | None:
    """The cells of all artifacts; None where a single one needs no table."""
    made: list[Artifact | Refused] = [*loaded.manifest.artifacts, *loaded.manifest.refused]
    if len(made) < 2:
        return None
    cells = {(one.format, one.precision): _cell(loaded, one) for one in made}
    columns = tuple(p for p in PRECISIONS if any(key[1] == p for key in cells))
    rows = tuple(
        MatrixRow(
            name=FORMAT_NAMES.get(format, format),
            engine=_engine(loaded, format),
            cells=tuple(cells.get((format, precision)) for precision in columns),  # type: ignore[arg-type]
        )
        for format in FORMATS
        if any(key[0] == format for key in cells)
    )
    return Matrix(
        columns=columns,
        rows=rows,
        clock=clock(loaded),
        same=_same_word(loaded),
        untimed=any(not cell.time for cell in cells.values() if cell.size),
    )


def _same_word(loaded: Loaded) -> str:
    embeds = any(r.decisions and r.decisions.embedding for r in loaded.reports.values())
    return "nearest neighbours" if embeds else "answers"


def _engine(loaded: Loaded, format: str) -> str:
    """What ran a format's artifacts, as short as it can be said."""
    for artifact in loaded.manifest.artifacts:
        if artifact.format == format and artifact.judgement and artifact.judgement.executed_by:
            return clean(artifact.judgement.executed_by).replace("; ", ", ")
    return "not run here"


def _cell(loaded: Loaded, one: Artifact | Refused) -> Cell:
    key = f"{one.format}-{one.precision}"
    verdict = one.verdict or "unproven"
    report = loaded.reports.get(key)
    absent = isinstance(one, Artifact) and not_run_here(one)
    return Cell(
        verdict=verdict,
        word="Not run here" if absent else VERDICT_WORD[verdict],
        meaning=VERDICT_MEANING[verdict],
        anchor=f"a-{key}" if isinstance(one, Artifact) or report else "refused",
        size=mebibytes(one.size / _MB) if isinstance(one, Artifact) else "",
        time=_time(loaded, key),
        same=_same(report),
    )


def _time(loaded: Loaded, key: str) -> str:
    measured = loaded.measurements.get(key)
    if not measured:
        return ""
    run = measured[0].run
    return milliseconds((run.cpu if clock(loaded) == "CPU" else run.wall).p50)


def _same(report: Report | None) -> str:
    if report is None:
        return ""
    if report.decisions and report.decisions.decided.n:
        return f"{percent(1.0 - plain(report.decisions.decided.rate))} same"
    if report.outputs:
        return f"{scientific(max(report.outputs, key=lambda o: plain(o.relative)).relative)} off"
    return ""
