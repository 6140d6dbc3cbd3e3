"""The table of results: one row an artifact, for the command line and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeserve.terminal_text import escape_controls
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import Number, plain
from edgeserve.types.reports import Report

_COLUMNS = ("artifact", "verdict", "size", "max abs diff", "agreement with reference")

#: Colours of verdicts, readable on white and on black.
_COLOURS = {"pass": "#1a7f37", "degraded": "#9a6700", "unproven": "#8250df", "fail": "#cf222e"}


@dataclass(frozen=True)
class ResultTable:
    """Text in rows and columns; ``str`` gives it aligned, a notebook shows it as HTML."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(map(escape_controls, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = (map(str.ljust, line, widths) for line in lines)
        return "\n".join("  ".join(line).rstrip() for line in cells)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{html.escape(c)}</th>" for c in self.columns)
        body = "".join(
            f"<tr>{''.join(map(_cell, map(escape_controls, row)))}</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    colour = f";color:{_COLOURS[text]};font-weight:600" if text in _COLOURS else ""
    return f"<td style='text-align:left{colour}'>{html.escape(text)}</td>"


def result_table(
    artifacts: Sequence[Artifact],
    refused: Sequence[Refused],
    reports: Mapping[str, Report],
    latency_ms: Mapping[str, Number] | None = None,
) -> ResultTable:
    """The table of some artifacts.

    Args:
        artifacts: Those that are kept.
        refused: Those that failed.
        reports: Of the validation, by artifact.
        latency_ms: Median time of a run, by artifact; a column more where there is one.
    """
    rows = []
    for artifact in artifacts:
        report = reports.get(artifact.name)
        worst = max((plain(o.max_abs) for o in report.outputs), default=None) if report else None
        rows.append(
            (
                artifact.name,
                artifact.verdict or "",
                file_size(artifact.size),
                "-" if worst is None else f"{worst:.2g}",
                agreement(report),
            )
        )
    for each in refused:
        rows.append((f"{each.format}-{each.precision}", each.verdict, "-", "-", each.code))
    if not latency_ms:
        return ResultTable(_COLUMNS, tuple(rows))
    times = (latency_ms.get(row[0]) for row in rows)
    shown = ("-" if ms is None else f"{plain(ms):.2f}" for ms in times)
    with_times = ((*row, ms) for row, ms in zip(rows, shown, strict=True))
    return ResultTable((*_COLUMNS, "p50 ms"), tuple(with_times))


def agreement(report: Report | None) -> str:
    """How far decisions agree: ``decided 440/440, flips ≤ 7.6 % (limit 2 %) · all 528/532``."""
    from edgeserve.report.summary import agreement_phrase

    if report is None:
        return "not validated"
    phrase = agreement_phrase(report).replace("\u00a0", " ")
    if report.decisions is None:
        return phrase
    raw = report.decisions.raw
    return f"{phrase} · all {raw.n - raw.count}/{raw.n}"


def file_size(count: float) -> str:
    """Bytes as KiB or MiB."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"
