"""What a stage hands back: the manifest, the reports, the exit code, and JSON or JUnit XML of them.

``--junit FILE`` writes the gate's checks as JUnit XML, so that CI shows them as tests. The
table of results has one row an artifact, for the command line and for notebooks.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec

from edgeserve.errors import escape_controls
from edgeserve.files import write_atomic
from edgeserve.options import value_error
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import Number, encode, plain
from edgeserve.types.cli_json import ArtifactOutput, ErrorOutput, Output, RefusedOutput
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Report
from edgeserve.types.vocabulary import Verdict

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


#: Verdicts from best to worst.
_RANK: dict[Verdict, int] = {"pass": 0, "degraded": 1, "unproven": 2, "fail": 3}


def meets(verdict: Verdict | None, required: Verdict) -> bool:
    """Whether ``verdict`` is at least as good as ``required``."""
    return verdict is not None and _RANK[verdict] <= _RANK[required]


@dataclass(frozen=True)
class Change:
    """One artifact then and now.

    Attributes:
        name: ``{format}-{precision}``.
        worse: The verdict fell, or more answers flip than chance explains.
        words: What has changed, in one line.
    """

    name: str
    worse: bool
    words: str


@dataclass(frozen=True)
class StageResult:
    """What came out of a stage over a workspace.

    Attributes:
        out: The workspace, as typed.
        manifest: As it stands now; None after a dry run.
        cells: The ``{format}-{precision}`` this call was about.
        reports: The gate's reports, by cell.
        required: Least verdict asked for with ``--require``.
        plan: What a dry run would do, one line each.
        changes: What has become of each artifact since the reports of ``--against``.
        made: Files made besides the workspace (bundle, report), by kind.
        repros: Scripts that fail as a format did (``--bisect``), by format, relative to ``out``.
    """

    out: str
    manifest: Manifest | None
    cells: tuple[str, ...] = ()
    reports: dict[str, Report] = field(default_factory=dict)
    required: Verdict | None = None
    plan: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    made: dict[str, str] = field(default_factory=dict)
    repros: dict[str, str] = field(default_factory=dict)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts this call was about."""
        known = self.manifest.artifacts if self.manifest else ()
        return tuple(a for a in known if a.name in self.cells)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The refusals this call was about."""
        known = self.manifest.refused if self.manifest else ()
        return tuple(r for r in known if f"{r.format}-{r.precision}" in self.cells)

    @property
    def below_required(self) -> tuple[str, ...]:
        """Artifacts that miss ``--require``."""
        if self.required is None:
            return ()
        return tuple(a.name for a in self.artifacts if not meets(a.verdict, self.required))

    @property
    def worse(self) -> tuple[Change, ...]:
        """Artifacts that are worse than they were."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def exit_code(self) -> int:
        """1 when something was refused, misses ``--require`` or is worse than before, else 0."""
        return 1 if self.refused or self.below_required or self.worse else 0

    def json(self) -> bytes:
        """The ``--json`` object."""
        output = Output(
            out=self.out,
            model_id=self.manifest.model_id if self.manifest else None,
            artifacts=tuple(_artifact(a) for a in self.artifacts),
            refused=tuple(
                msgspec.structs.replace(
                    msgspec.convert(each, RefusedOutput, from_attributes=True),
                    repro=self.repros.get(each.format),
                )
                for each in self.refused
            ),
            error=self.error,
        )
        return encode(output)

    @property
    def error(self) -> ErrorOutput | None:
        """Why the exit code is 1 although nothing was refused; None where it is not."""
        if not self.below_required:
            return self._worse()
        return ErrorOutput(
            code="EDGE-CHECK-900",
            message=f"{', '.join(self.below_required)}: wanted {self.required} or better",
            hint="see the reasons of each artifact; more or other --data may settle `unproven`",
        )

    def _worse(self) -> ErrorOutput | None:
        if not self.worse:
            return None
        return ErrorOutput(
            code="EDGE-CHECK-901",
            message="; ".join(f"{change.name}: {change.words}" for change in self.worse),
            hint="compare the worst inputs of both reports",
        )


def _artifact(artifact: Artifact) -> ArtifactOutput:
    judged = artifact.judgement
    return ArtifactOutput(
        format=artifact.format,
        precision=artifact.precision,
        entry=artifact.entry,
        sha256=artifact.sha256,
        verdict=judged.verdict if judged else "unproven",
        reasons=judged.reasons if judged else (),
        io=artifact.io,
    )


def check_writable(path: Path) -> None:
    """See, before any work, that the file could be written.

    Raises:
        UsageError: EDGE-USAGE-005, it is a folder, or lies where nothing may be written.
    """
    folder = next(p for p in path.absolute().parents if p.exists())
    if path.is_dir():
        got = "a folder"
    elif not folder.is_dir():
        got = f"a path below {folder}, which is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        got = f"{folder} may not be written to"
    else:
        return
    hint = "name a file, such as reports/junit.xml"
    raise value_error(f"--junit {path}", "a file that can be written", got, hint)


def write_junit(
    path: Path, manifest: Manifest, reports: dict[str, Report], changes: Sequence[Change] = ()
) -> None:
    """Write one test suite an artifact and one test case a check, the verdict being the last.

    What ``--against`` found is a suite of its own, one case an artifact.

    Raises:
        FilesError: the file cannot be written.
    """
    root = ElementTree.Element("testsuites", name=f"edgeserve {manifest.name}")
    for name, report in sorted(reports.items()):
        _suite(root, name, _cases(report), f"{float(report.seconds):.3f}")
    if changes:
        cases = [
            _Case(c.name, c.words) if c.worse else _Case(c.name, None, c.words) for c in changes
        ]
        _suite(root, "against", cases, "0")
    ElementTree.indent(root)
    write_atomic(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _cases(report: Report) -> list[_Case]:
    judged = report.judgement
    reasons = "; ".join(f"{r.code} {r.message}" for r in judged.reasons)
    cases = [_Case(c.name, None if c.ok else c.detail) for c in report.checks]
    failure = reasons if judged.verdict == "fail" else None
    return [*cases, _Case("verdict", failure, f"{judged.verdict} {reasons}".strip())]


class _Case(NamedTuple):
    """A test case: its name, why it failed (None: it did not), and what it says."""

    name: str
    failure: str | None
    said: str = ""


def _suite(root: ElementTree.Element, name: str, cases: Sequence[_Case], seconds: str) -> None:
    failures, count = sum(case.failure is not None for case in cases), len(cases)
    suite = ElementTree.SubElement(
        root, "testsuite", name=name, tests=str(count), failures=str(failures), time=seconds
    )
    for each in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=each.name)
        if each.failure is not None:
            ElementTree.SubElement(case, "failure", message=each.failure)
        if each.said:
            ElementTree.SubElement(case, "system-out").text = each.said
