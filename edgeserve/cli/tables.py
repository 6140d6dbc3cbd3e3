"""What the commands print for people: tables on standard output, plain when piped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from edgeserve import decisions
from edgeserve.cli.sizes import fixed_sizes
from edgeserve.types.base import Number, encode, plain
from edgeserve.types.controls import escaped
from edgeserve.types.profile import DeviceProfile, Profile
from edgeserve.types.records import Detection, Tensors, Tokens

if TYPE_CHECKING:
    from edgeserve.pipeline.inspect import Inspection
    from edgeserve.pipeline.measure import MeasureOutcome
    from edgeserve.pipeline.outcome import Outcome
    from edgeserve.pipeline.package import PackageOutcome
    from edgeserve.types.reports import DecisionStats, Report
    from edgeserve.wrapper.certificate import Certificate

__all__ = [
    "print_answers",
    "print_certificate",
    "print_inspection",
    "print_measurements",
    "print_outcome",
    "print_packaged",
    "print_profiles",
]

_STYLES = {"pass": "green", "degraded": "yellow", "unproven": "magenta", "fail": "red"}


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with columns as wide as what they hold; verdicts in colour on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escaped(cell), style=_STYLES.get(cell, "")) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width: do not fold for it
    console.print(table)


def _size(count: float) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"


def _percent(share: Number) -> str:
    value = plain(share) * 100
    return f"{value:.2g} %" if 0 < value < 99.5 else f"{value:.0f} %"


def _agreement(stats: DecisionStats | None) -> str:
    if stats is None:
        return "compared as tensors"
    decided = stats.decided
    raw = stats.raw
    return (
        f"{decided.n - decided.count} of {decided.n} clear answers, {raw.n - raw.count} of"
        f" {raw.n} in all; would notice {_percent(stats.minimum_harm)} changed"
    )


def _worst(report: Report | None) -> str:
    if report is None or not report.outputs:
        return "-"
    return f"{max(plain(o.max_abs) for o in report.outputs):.2g}"


def print_outcome(outcome: Outcome) -> None:
    """What came out of convert, validate or run."""
    for line in outcome.plan:
        print(line)
    if outcome.manifest is None:
        return
    rows = []
    for artifact in outcome.artifacts:
        report = outcome.reports.get(artifact.name)
        agreement = _agreement(report.decisions if report else None)
        size = _size(artifact.size)
        rows.append((artifact.name, artifact.verdict or "", size, _worst(report), agreement))
    for refused in outcome.refused:
        name = f"{refused.format}-{refused.precision}"
        rows.append((name, refused.verdict, "-", "-", refused.code))
    _table(("artifact", "verdict", "size", "max abs diff", "decides as the reference"), rows)
    for artifact in outcome.artifacts:
        for said in fixed_sizes(artifact, outcome.manifest):
            print(escaped(f"{artifact.name}: {said}"))
    for name, report in outcome.reports.items():
        _print_truths(name, report)
    _print_reasons(outcome)
    print(f"\nmodel_id {outcome.manifest.model_id[:16]}…  in {_near(outcome.out)}")
    for kind, path in outcome.made.items():
        print(f"{kind:<8} {_near(path)}")


def _print_truths(name: str, report: Report) -> None:
    """What is known of it against true labels; nothing where the data hold none."""
    if report.labels is None and not report.metrics:
        return
    from edgeserve.report.sentence import labels_said, metric_called, metric_said

    if report.labels is not None:
        print(escaped(f"{name}: {report.labels.metric}: {labels_said(report.labels)}"))
    for stats in report.metrics:
        print(escaped(f"{name}: {metric_called(stats)}: {metric_said(stats)}"))


def _near(path: str) -> str:
    """A path as short as it can be said from here."""
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below


def _print_reasons(outcome: Outcome) -> None:
    for artifact in outcome.artifacts:
        for reason in artifact.judgement.reasons if artifact.judgement else ():
            print(escaped(f"{artifact.name}: {reason.code} {reason.message}"))
    for refused in outcome.refused:
        name = f"{refused.format}-{refused.precision}"
        print(escaped(f"{name}: {refused.code} {refused.message}", lines=True))
        print(escaped(f"  hint: {refused.hint}", lines=True))
    for change in outcome.changes:
        print(escaped(f"{change.name}: {'WORSE: ' if change.worse else ''}{change.words}"))
    if outcome.short:
        print(f"--require {outcome.required} is missed by {', '.join(outcome.short)}")


def print_measurements(measured: MeasureOutcome) -> None:
    """Times and memory per artifact."""
    rows = []
    for name, m in measured.measurements.items():
        wall, cpu = m.run.wall, m.run.cpu
        rows.append(
            (
                name,
                f"{plain(wall.p50):.2f}",
                f"{plain(wall.p90):.2f}",
                f"{plain(cpu.p50):.2f}",
                f"{plain(m.load_ms):.0f}",
                f"{plain(m.first_ms):.1f}",
                f"{plain(m.rss_mb):.0f}",
                f"{wall.n}",
                f"{m.runtime.name} {m.runtime.version} {m.runtime.delegate}, {m.threads} thread(s)",
            )
        )
    heads = ("artifact", "p50 ms", "p90 ms", "CPU ms", "load ms", "first ms", "RSS MiB", "n", "on")
    _table(heads, rows)
    for name, m in measured.measurements.items():
        if m.noisy:
            print(f"{name}: noisy, do not trust these figures: {m.noisy}")


def print_packaged(packaged: PackageOutcome) -> None:
    """The sealed bundle."""
    said = ", ".join(f"{name} ({verdict})" for name, verdict in packaged.verdicts.items())
    print(f"{packaged.path}  {_size(packaged.size)}  {said}")
    print(f"model_id {packaged.model_id}\nsha256   {packaged.sha256}")


def _answer(answer: Any) -> str:
    if isinstance(answer, Tensors):
        return ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in answer.items())
    return decisions.describe(answer)


def print_answers(inputs: Sequence[str], answers: Sequence[Any]) -> None:
    """One line an input, then where they ran."""
    for given, answer in zip(inputs, answers, strict=True):
        print(f"{escaped(given)}\t{escaped(_answer(answer))}")
        for line in _details(answer):
            print(f"{'':<4}{escaped(line)}")
    ran = answers[0].ran_on if answers else None
    if ran:
        where = f"{ran.runtime.name} {ran.runtime.version} ({ran.runtime.delegate})"
        print(f"ran on {where}, {ran.format}-{ran.precision}, proof: {ran.proof}")
        if ran.note:
            print(ran.note)


#: Boxes and spans printed of one answer; ``--json`` has all.
_SHOWN = 20


def _details(answer: Any) -> list[str]:
    """What stands under an answer's line: further labels, boxes with corners, spans."""
    lines = [f"{score:.3f}  {label}" for label, score in getattr(answer, "top", ())[1:]]
    if isinstance(answer, Detection):
        found = zip(answer.scores, answer.labels, answer.boxes, strict=True)
        for score, label, box in found:
            corners = " ".join(f"{corner:.0f}" for corner in box)
            lines.append(f"{score:.3f}  {label}  {corners}")
    if isinstance(answer, Tokens):
        lines += [f"{s.score:.3f}  {s.label}  {s.start}-{s.end}" for s in answer.spans]
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more: --json has them all"]


def print_certificate(certificate: Certificate) -> None:
    """The proof that ran on this device."""
    device = certificate.device
    print(f"{certificate.name} version {certificate.version}: {certificate.verdict}")
    print(f"model_id {certificate.model_id}")
    print(f"on       {device.processor}, {device.system}, {certificate.made}")
    rows = []
    for proof in certificate.proofs:
        ran = proof.runtime
        rows.append(
            (
                f"{proof.format}-{proof.precision}",
                f"{ran.name} {ran.version} {ran.delegate}" if ran else proof.delegate,
                str(proof.threads or "default"),
                f"{proof.passed}/{proof.total}",
                f"{plain(proof.max_difference):.2g}",
                f"{proof.run_ms:.2g}" if proof.run_ms is not None else "-",
                proof.verdict,
            )
        )
    heads = ("artifact", "engine", "threads", "golden cases", "score diff", "run ms", "verdict")
    _table(heads, rows)
    for proof in certificate.proofs:
        if proof.reason:
            print(f"{proof.format}-{proof.precision} {proof.delegate}: {proof.reason}")
    for line in certificate.not_run:
        print(f"not run: {line}")


def print_inspection(found: Inspection) -> None:
    """What a bundle or workspace holds."""
    m = found.manifest
    print(f"{m.name} version {m.version}, {m.task} ({found.kind})")
    print(f"model_id {m.model_id}")
    if found.sha256:
        print(f"sha256   {found.sha256}")
    for kind, specs in (("input", m.signature.inputs), ("output", m.signature.outputs)):
        for spec in specs:
            print(escaped(f"{kind:<8} {spec.name} {spec.dtype} {list(spec.shape)}"))
    golden = (
        f"{len(m.golden.cases)} golden cases ({m.golden.origin})" if m.golden else "no golden cases"
    )
    print(f"{golden}, {len(m.labels)} labels, {len(m.files)} members, all hashes hold")
    rows = [(a.name, a.verdict or "", _size(a.size), a.sha256[:16]) for a in m.artifacts]
    _table(("artifact", "verdict", "size", "sha256"), rows)
    for graph in found.graphs:
        ops = ", ".join(f"{n} {op}" for op, n in graph.ops.items())
        print(f"{graph.artifact}: {ops}; {graph.weights} weights")


def print_profiles(found: Sequence[Profile], whole: bool) -> None:
    """All profiles as a list, or one whole."""
    if whole:
        import json

        print(json.dumps(json.loads(encode(found[0])), indent=2))
        return
    rows = [
        (p.name, "device" if isinstance(p, DeviceProfile) else "workload", p.title) for p in found
    ]
    _table(("name", "kind", "what"), rows)
