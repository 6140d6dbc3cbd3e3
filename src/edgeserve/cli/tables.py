"""The tables that commands print on standard output, without colour when piped.

Below them: the dimensions that the source declares as dynamic and an artifact fixes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgeserve import tasks
from edgeserve.errors import escape_controls
from edgeserve.pipeline.result import file_size, result_table
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import encode, plain
from edgeserve.types.manifest import Manifest
from edgeserve.types.profile import DeviceProfile, Profile
from edgeserve.types.records import Tensors
from edgeserve.types.tensors import Signature

if TYPE_CHECKING:
    from edgeserve.package import Packaged
    from edgeserve.pipeline.inspect import Inspection
    from edgeserve.pipeline.measure import MeasureResult
    from edgeserve.pipeline.result import StageResult
    from edgeserve.types.reports import Report
    from edgeserve.wrapper.certificate import Certificate


def fixed_sizes(artifact: Artifact, manifest: Manifest) -> Iterator[str]:
    """One text for each dimension that is dynamic in the source and fixed in the artifact.

    Except the batch, because callers may still pass any batch, and lengths that padding covers up
    to the declared maximum.
    """
    signature = manifest.signature
    for dim, sizes in _fixed(artifact, signature).items():
        low, high = signature.dims[dim]
        if not low < high or (dim in _padded(manifest) and max(sizes) >= high):
            continue
        listed = ", ".join(str(size) for size in sorted(sizes))
        if dim in _padded(manifest):
            yield f"{dim!r} is padded to {listed}, longer inputs fail (declared {low} to {high})"
        else:
            yield f"{dim!r} is fixed at {listed} (declared {low} to {high})"


def _fixed(artifact: Artifact, signature: Signature) -> dict[str, set[int]]:
    """The sizes of each dimension that is dynamic in the source and fixed in the artifact."""
    found: dict[str, set[int]] = {}
    free = {signature.batch_dim}
    for io in artifact.buckets or (artifact.io,):
        for ours, theirs in zip(signature.inputs, io.inputs, strict=False):
            for dim, size in zip(ours.shape, theirs.shape, strict=False):
                if isinstance(dim, str) and isinstance(size, int):
                    found.setdefault(dim, set()).add(size)
                elif isinstance(dim, str):
                    free.add(dim)
    return {dim: sizes for dim, sizes in found.items() if dim not in free}


def _padded(manifest: Manifest) -> set[str]:
    """Dimensions whose inputs may be padded to an artifact's size."""
    shapes = (manifest.signature.input(name).shape for name in manifest.processing.padding)
    named = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    return named | set(manifest.signature.padded)


_STYLES = {"pass": "green", "degraded": "yellow", "unproven": "magenta", "fail": "red"}


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with columns as wide as their content; verdicts in colour on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_controls(cell), style=_STYLES.get(cell, "")) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width: do not fold for it
    console.print(table)


def _legend(reports: Iterable[Report]) -> Iterator[str]:
    """The rule behind the verdicts of the table, for each set of limits in it."""
    from edgeserve.report.formatting import percent

    judged = [r for r in reports if r.decisions and r.decisions.decided.n]
    for limits in dict.fromkeys(r.limits for r in judged):
        passing, degraded = percent(limits.pass_flips), percent(limits.degraded_flips)
        yield (
            f"flips: 95 % upper bound of the flip rate of decided answers; pass up to {passing}, "
            f"degraded up to {degraded}, else unproven (more inputs needed) or fail"
        ).replace("\u00a0", " ")


def print_outcome(outcome: StageResult) -> None:
    """The result of convert, validate or run."""
    for line in outcome.plan:
        print(line)
    if outcome.manifest is None:
        return
    table = result_table(outcome.artifacts, outcome.refused, outcome.reports)
    _table(table.columns, table.rows)
    for line in _legend(outcome.reports.values()):
        print(line)
    for artifact in outcome.artifacts:
        for text in fixed_sizes(artifact, outcome.manifest):
            print(escape_controls(f"{artifact.name}: {text}"))
    for name, report in outcome.reports.items():
        _print_truths(name, report)
    _print_reasons(outcome)
    print(f"\nmodel_id {outcome.manifest.model_id[:16]}…  in {_near(outcome.out)}")
    for kind, path in outcome.made.items():
        print(f"{kind:<8} {_near(path)}")


def _print_truths(name: str, report: Report) -> None:
    """The accuracy against true labels; nothing where the data have none."""
    if report.labels is None and not report.metrics:
        return
    from edgeserve.report.formatting import accuracy_sentence, metric_sentence, metric_title

    if report.labels is not None:
        print(
            escape_controls(f"{name}: {report.labels.metric}: {accuracy_sentence(report.labels)}")
        )
    for stats in report.metrics:
        print(escape_controls(f"{name}: {metric_title(stats)}: {metric_sentence(stats)}"))


def _near(path: str) -> str:
    """A path relative to the working directory, if it lies below it."""
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below


def _print_reasons(outcome: StageResult) -> None:
    shared: dict[tuple[str, str], list[str]] = {}
    for artifact in outcome.artifacts:
        for reason in artifact.judgement.reasons if artifact.judgement else ():
            shared.setdefault((reason.code, reason.message), []).append(artifact.name)
    for (code, message), names in shared.items():
        print(escape_controls(f"{_listed(names, len(outcome.artifacts))}: {code} {message}"))
    for refused in outcome.refused:
        name = f"{refused.format}-{refused.precision}"
        print(escape_controls(f"{name}: {refused.code} {refused.message}", lines=True))
        print(escape_controls(f"  hint: {refused.hint}", lines=True))
    for change in outcome.changes:
        print(escape_controls(f"{change.name}: {'WORSE: ' if change.worse else ''}{change.words}"))
    if outcome.below_required:
        print(f"below --require {outcome.required}: {', '.join(outcome.below_required)}")


def _listed(names: Sequence[str], of: int) -> str:
    """Artifacts with the same reason, by name, or all of them."""
    return f"all {of} artifacts" if len(names) == of > 2 else ", ".join(names)


def print_measurements(measured: MeasureResult) -> None:
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
            print(f"{name}: noisy, these figures are unreliable: {m.noisy}")


def print_packaged(packaged: Packaged) -> None:
    """The sealed bundle."""
    held = ", ".join(f"{name} ({verdict})" for name, verdict in packaged.verdicts.items())
    print(f"{packaged.path}  {file_size(packaged.size)}  {held}")
    print(f"model_id {packaged.model_id}\nsha256   {packaged.sha256}")


def _answer(answer: Any) -> str:
    if isinstance(answer, Tensors):
        return ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in answer.items())
    return tasks.describe(answer)


def print_answers(inputs: Sequence[str], answers: Sequence[Any]) -> None:
    """One line an input, then the runtime."""
    for given, answer in zip(inputs, answers, strict=True):
        print(f"{escape_controls(given)}\t{escape_controls(_answer(answer))}")
        for line in _details(answer):
            print(f"{'':<4}{escape_controls(line)}")
    ran = answers[0].ran_on if answers else None
    if ran:
        where = f"{ran.runtime.name} {ran.runtime.version} ({ran.runtime.delegate})"
        print(f"ran on {where}, {ran.format}-{ran.precision}, proof: {ran.proof}")
        if ran.note:
            print(ran.note)


#: Boxes and spans printed of one answer; ``--json`` lists all.
_SHOWN = 20


def _details(answer: Any) -> list[str]:
    """The lines below an answer: further labels, boxes with corners, spans."""
    lines = [] if isinstance(answer, Tensors) else tasks.details(answer)
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more: --json lists all"]


def print_certificate(certificate: Certificate) -> None:
    """The certificate of the golden cases on this device."""
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
    heads = ("artifact", "runtime", "threads", "golden cases", "score diff", "run ms", "verdict")
    _table(heads, rows)
    for proof in certificate.proofs:
        if proof.reason:
            print(f"{proof.format}-{proof.precision} {proof.delegate}: {proof.reason}")
    for line in certificate.not_run:
        print(f"not run: {line}")


def print_inspection(found: Inspection) -> None:
    """The content of a bundle or workspace."""
    m = found.manifest
    print(f"{m.name} version {m.version}, {m.task} ({found.kind})")
    print(f"model_id {m.model_id}")
    if found.sha256:
        print(f"sha256   {found.sha256}")
    for kind, specs in (("input", m.signature.inputs), ("output", m.signature.outputs)):
        for spec in specs:
            print(escape_controls(f"{kind:<8} {spec.name} {spec.dtype} {list(spec.shape)}"))
    golden = (
        f"{len(m.golden.cases)} golden cases ({m.golden.origin})" if m.golden else "no golden cases"
    )
    print(f"{golden}, {len(m.labels)} labels, {len(m.files)} members, all hashes verified")
    rows = [(a.name, a.verdict or "", file_size(a.size), a.sha256[:16]) for a in m.artifacts]
    _table(("artifact", "verdict", "size", "sha256"), rows)
    for graph in found.graphs:
        ops = ", ".join(f"{n} {op}" for op, n in graph.ops.items())
        print(f"{graph.artifact}: {ops}; {graph.weights} weights")


def print_profiles(found: Sequence[Profile], whole: bool) -> None:
    """All profiles as a list, or one in full."""
    if whole:
        import json

        print(json.dumps(json.loads(encode(found[0])), indent=2))
        return
    rows = [
        (p.name, "device" if isinstance(p, DeviceProfile) else "workload", p.title) for p in found
    ]
    _table(("name", "kind", "title"), rows)
