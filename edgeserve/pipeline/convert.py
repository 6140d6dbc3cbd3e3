"""``edgeserve convert``: export, candidates, gate, golden cases, manifest."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeserve import backends
from edgeserve.backends.onnx.optimum import NAME as OPTIMUM
from edgeserve.backends.onnx.optimum import check_optimum
from edgeserve.convert import parse_source
from edgeserve.data import load_data
from edgeserve.errors import BackendError
from edgeserve.pipeline import manifests
from edgeserve.pipeline.bench import Bench, Cell, at_work
from edgeserve.pipeline.bisect import bisect_failed, forget_scripts
from edgeserve.pipeline.candidates import Candidate, Candidates
from edgeserve.pipeline.export import export, identify
from edgeserve.pipeline.home import check_out
from edgeserve.pipeline.judging import Judged, ask_reference, gate
from edgeserve.pipeline.options import ConvertOptions, checked
from edgeserve.pipeline.outcome import Outcome
from edgeserve.pipeline.placing import golden_for, refused_by_gate, settle
from edgeserve.pipeline.profiles import limits_of
from edgeserve.pipeline.ui import QUIET, Ui
from edgeserve.types.artifact import Refused
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Limits, Report
from edgeserve.types.source import Exported
from edgeserve.validate.request import Answers

__all__ = ["convert"]


@dataclass(frozen=True)
class _Plan:
    options: ConvertOptions
    cells: tuple[Cell, ...]
    left: tuple[str, ...]
    limits: Limits


def convert(options: ConvertOptions, ui: Ui = QUIET) -> Outcome:
    """Convert a source and have the gate judge every artifact.

    Everything that can be refused without work is refused before the workspace is touched.

    Raises:
        UsageError: an option's value is unknown, or ``options.out`` is a folder with other things.
        BackendError: a format or precision that this version does not make, or a missing package.
        ConvertError: the source cannot be loaded or exported.
        DataError: the data set cannot be used.
        ValidateError: the reference cannot be asked.
    """
    plan = _plan(checked(options))
    if options.dry_run:
        return Outcome(out=options.out, manifest=None, plan=_describe(plan))
    with at_work(options.out, ui, options.timeout) as bench:
        manifest, reports, repros = _work(bench, plan)
    return Outcome(
        out=options.out,
        manifest=manifest,
        cells=tuple(cell.name for cell in plan.cells),
        reports=reports,
        required=options.require,  # type: ignore[arg-type]
        repros=repros,
    )


def _plan(options: ConvertOptions) -> _Plan:
    source = parse_source(options.source, Path.cwd())
    check_out(Path(options.out))
    if options.via == OPTIMUM:
        check_optimum(source.kind)
    if options.data is not None:
        load_data(Path(options.data), None)
    for format in options.to:
        backend = backends.get(format)
        if missing := backend.missing_tools() or backend.missing():
            raise BackendError(
                "EDGE-BACKEND-004",
                f"format {format}",
                wanted="its packages",
                got="not installed",
                hint=missing,
            )
    return _Plan(options, *_cells(options), limits_of(options.profile))


def _cells(options: ConvertOptions) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """What is made, and what is not because its format has no such precision in this version.

    Raises:
        BackendError: EDGE-BACKEND-006, none of the formats makes a precision that was asked for.
    """
    cells: list[Cell] = []
    left: list[str] = []
    for precision in options.precision:
        makers = [f for f in options.to if precision in backends.get(f).precisions]
        if not makers:
            made = {f: ", ".join(backends.get(f).precisions) for f in options.to}
            raise BackendError(
                "EDGE-BACKEND-006",
                f"{' and '.join(options.to)} in {precision}",
                wanted="; ".join(f"{f} in {precisions}" for f, precisions in made.items()),
                got=f"{precision}, which is not made in this version",
                hint=f"ask for --precision {backends.get(options.to[0]).precisions[0]}",
            )
        cells += [Cell(f, precision) for f in makers]
        left += [f"{f}-{precision}" for f in options.to if f not in makers]
    order = {f: i for i, f in enumerate(options.to)}
    return tuple(sorted(cells, key=lambda cell: order[cell.format])), tuple(left)


def _describe(plan: _Plan) -> tuple[str, ...]:
    options = plan.options
    data = options.data or "generated inputs only (no --data)"
    reference = options.reference or "the source's own, else the PyTorch module"
    return (
        f"export    {options.source} -> {options.out}/source",
        *(f"convert   {cell.name} -> {options.out}/artifacts/{cell.name}" for cell in plan.cells),
        *(f"leave out {name}, which this version does not make" for name in plan.left),
        f"judge     on {data}, against {reference}",
        f"limits    pass <= {plan.limits.pass_flips:.0%} decided flips, "
        f"degraded <= {plan.limits.degraded_flips:.0%}, tensors <= {plan.limits.tensor:g} of scale",
    )


def _work(bench: Bench, plan: _Plan) -> tuple[Manifest, dict[str, Report], dict[str, str]]:
    exported = export(bench, plan.options)
    model_id = identify(bench, exported)
    for name in plan.left:
        bench.ui.note(f"{name}: left out, this version does not make it")
    made, judged, answers = _side_by_side(bench, plan, exported, model_id)
    candidates = [m for m in made if isinstance(m, Candidate)]
    refused = [_beside(m, judged) for m in made if isinstance(m, Refused)]
    forget_scripts(bench, plan.options.to)
    repros = bisect_failed(bench, refused, judged) if plan.options.bisect else {}
    manifest = _start(bench, plan, exported, model_id)
    reports = {j.artifact.name: j.report for j in judged}
    if plan.options.all_or_nothing and (refused or any(j.failed for j in judged)):
        refused += [refused_by_gate(j) for j in judged if j.failed]
        return manifests.with_cells(manifest, (), refused), reports, repros
    golden = golden_for(bench, judged, answers, None, manifest.golden)
    manifest = settle(bench, manifest, judged, refused, golden, answers)
    for each in candidates:
        bench.stages.finish(f"make {each.cell.name}", each.key)
    return manifest, reports, repros


def _beside(refused: Refused, judged: list[Judged]) -> Refused:
    """A refusal because of an op, with the formats that took the model in this very run."""
    took = dict.fromkeys(str(j.artifact.format) for j in judged if not j.failed)
    if not took or not refused.code.startswith("EDGE-OP-"):
        return refused
    return msgspec.structs.replace(
        refused, hint=f"{refused.hint}; {' and '.join(took)} took the whole model in this run"
    )


def _side_by_side(
    bench: Bench, plan: _Plan, exported: Exported, model_id: str
) -> tuple[list[Candidate | Refused], list[Judged], Answers]:
    """Ask the reference, make every cell and judge it, each as soon as what it needs is there.

    The reference is started first: what is wrong with it or the data ends the command early.
    """
    options, crew = plan.options, bench.crew
    candidates = Candidates(bench, exported, model_id, options.data, options.via)
    asked = crew.start(ask_reference, bench, options.data, exported.reference or "pt2")
    made = [crew.start(candidates.make, cell) for cell in plan.cells]

    def judge(making: Future[Candidate | Refused]) -> Judged | None:
        candidate = making.result()
        if isinstance(candidate, Refused):
            return None
        return gate(bench, candidate.artifact, candidate.root, asked.result(), plan.limits)

    judging = [crew.start(judge, making) for making in made]
    crew.finish()
    judged = [found for future in judging if (found := future.result())]
    return [future.result() for future in made], judged, asked.result()


def _start(bench: Bench, plan: _Plan, exported: Exported, model_id: str) -> Manifest:
    """The manifest to grow: the workspace's own while it is about this very model."""
    old = bench.workspace.manifest if bench.workspace.exists else None
    fresh = manifests.fresh(
        exported, model_id, manifests.model_name(exported, plan.options.name), old
    )
    if old is None or old.model_id != model_id or old.signature != exported.signature:
        return fresh
    return msgspec.structs.replace(
        fresh, artifacts=old.artifacts, refused=old.refused, golden=old.golden, reports=old.reports
    )
