"""``edgeserve convert``: export, candidates, validation gate, golden cases, manifest.

A workspace is made in a new or empty folder, or where one has been begun. With ``--bisect``, for
each format that failed, the smallest part that it fails on is searched, and a script of it
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeserve import backends
from edgeserve.backends.onnx.optimum import NAME as OPTIMUM
from edgeserve.backends.onnx.optimum import check_optimum
from edgeserve.convert import parse_source
from edgeserve.convert.bisect import BisectRequest, BisectResult
from edgeserve.convert.in_memory import GivenSource
from edgeserve.data import load_data
from edgeserve.errors import BackendError, EdgeError, UsageError
from edgeserve.pipeline.build import ArtifactBuilder, BuiltCandidate
from edgeserve.pipeline.export import export, write_identity
from edgeserve.pipeline.judge import JudgedArtifact, ask_reference, gate, hold_to_golden
from edgeserve.pipeline.options import check_convert_options, check_installed, expand_all, limits_of
from edgeserve.pipeline.promote import (
    gate_refusal,
    golden_for,
    model_name,
    new_manifest,
    promote,
    replace_targets,
)
from edgeserve.pipeline.result import StageResult
from edgeserve.pipeline.stage_context import (
    HEAVY,
    QUIET,
    TORCH,
    StageContext,
    Ui,
    Variant,
    open_stage,
)
from edgeserve.types.artifact import Refused
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import ConvertOptions
from edgeserve.types.reports import Limits, Report
from edgeserve.types.source import Exported
from edgeserve.validate.reference.caller_function import CallerFunction
from edgeserve.validate.requests import Answers

#: What a workspace holds; an interrupted first run leaves some of it and no manifest.
_WORKSPACE_NAMES = frozenset(
    (
        "artifacts assets failed golden identity.json logs manifest.json reports samples source"
    ).split()
)


def check_workspace_folder(out: Path) -> None:
    """See that conversion would not spread into a folder of the user's own things.

    Raises:
        UsageError: EDGE-USAGE-012.
    """
    if not out.is_dir() or (out / ".lock").exists() or (out / "source" / "source.json").exists():
        return
    try:
        strange = sorted(
            p.name for p in out.iterdir() if p.name[0] != "." and p.name not in _WORKSPACE_NAMES
        )
    except OSError:  # the workspace's lock says what is wrong
        return
    if strange:
        shown = ", ".join(strange[:3]) + (", ..." if len(strange) > 3 else "")
        wanted = "a new or empty folder, or a workspace"
        got = f"a folder with {shown}"
        hint = f"name one inside it: -o {out / 'edgeserve-out'}"
        raise UsageError("EDGE-USAGE-012", f"--out {out}", wanted=wanted, got=got, hint=hint)


_BISECT_VERB = "edgeserve.convert.bisect:bisect"

#: Most seconds that one format is searched for, and the share of a worker's time.
_SECONDS, _SHARE = 600.0, 0.8


def _bisect_failed(
    bench: StageContext, refused: Iterable[Refused], judged: Iterable[JudgedArtifact]
) -> dict[str, str]:
    """Search each format that was refused, or that answers wrongly in float32.

    Returns:
        The scripts that were written, by format; relative to the workspace.
    """
    failed = [r.format for r in refused if r.code.startswith(("EDGE-OP-", "EDGE-CONVERT-"))]
    failed += [j.artifact.format for j in judged if j.failed and j.artifact.precision == "fp32"]
    scripts = {}
    for format in dict.fromkeys(failed):
        script = _repro_path(format)
        found = _search(bench, format, script)
        bench.ui.note(f"{format}: {found.words}")
        if found.script:
            scripts[str(format)] = script
    return scripts


def _repro_path(format: str) -> str:
    return f"failed/repro_{format}.py"


def _search(bench: StageContext, format: str, script: str) -> BisectResult:
    request = BisectRequest(
        source_folder=str(bench.root / "source"),
        format=format,
        script=str(bench.root / script),
        seconds=min(_SECONDS, _SHARE * bench.timeout),
    )
    (bench.root / script).parent.mkdir(exist_ok=True)
    try:
        title, imports = f"bisect {format}", (*TORCH, *backends.get(format).slow_imports)
        log = f"bisect-{format}"
        return bench.work(title, _BISECT_VERB, request, BisectResult, log, HEAVY, imports=imports)
    except EdgeError as error:
        if error.code == "EDGE-WORKER-006":  # the command is ending
            raise
        return BisectResult(words=f"the part at fault was not found: {error.code} {error.message}")


_UNMADE = "this version does not make it"


@dataclass(frozen=True)
class _ConvertPlan:
    options: ConvertOptions
    cells: tuple[Variant, ...]
    left: dict[str, str]
    limits: Limits
    given: GivenSource | None


def convert(
    options: ConvertOptions,
    ui: Ui = QUIET,
    given: GivenSource | None = None,
    caller: CallerFunction | None = None,
) -> StageResult:
    """Convert a source and have the gate judge every artifact.

    Everything that can be refused without work is refused before the workspace is touched.

    Args:
        options: What to do.
        ui: Where progress is shown.
        given: A source that lives in this process; ``options.source`` is then its name.
        caller: A function of this process as the reference; ``options.reference`` is its name.

    Raises:
        UsageError: an option's value is unknown, or ``options.out`` is a folder with other things.
        BackendError: a format or precision that this version does not make, or a missing package.
        ConvertError: the source cannot be loaded or exported.
        DataError: the data set cannot be used.
        ValidateError: the reference cannot be asked.
    """
    options, left = expand_all(options)
    plan = _plan(check_convert_options(options), left, given)
    if options.dry_run:
        return StageResult(out=options.out, manifest=None, plan=_describe(plan))
    with open_stage(options.out, ui, options.timeout, caller) as bench:
        manifest, reports, repros = _work(bench, plan)
    return StageResult(
        out=options.out,
        manifest=manifest,
        cells=tuple(cell.name for cell in plan.cells),
        reports=reports,
        required=options.require,  # type: ignore[arg-type]
        repros=repros,
    )


def _plan(options: ConvertOptions, left: dict[str, str], given: GivenSource | None) -> _ConvertPlan:
    source = given.source if given else parse_source(options.source, Path.cwd())
    check_workspace_folder(Path(options.out))
    if options.via == OPTIMUM:
        check_optimum(source.kind)
    if options.data is not None:
        load_data(Path(options.data), None)
    for format in options.to:
        check_installed(format)
    cells, unmade = _cells(options)
    return _ConvertPlan(options, cells, left | unmade, limits_of(options.profile), given)


def _cells(options: ConvertOptions) -> tuple[tuple[Variant, ...], dict[str, str]]:
    """The variants to make, and those whose format has no such precision in this version.

    Raises:
        BackendError: EDGE-BACKEND-006, none of the formats makes a precision that was asked for.
    """
    cells: list[Variant] = []
    left: dict[str, str] = {}
    for precision in options.precision:
        makers = [f for f in options.to if precision in backends.get(f).precisions]
        if not makers:
            made = {f: ", ".join(backends.get(f).precisions) for f in options.to}
            where = f"{' and '.join(options.to)} in {precision}"
            wanted = "; ".join(f"{f} in {precisions}" for f, precisions in made.items())
            got = f"{precision}, which is not made in this version"
            hint = f"ask for --precision {backends.get(options.to[0]).precisions[0]}"
            raise BackendError("EDGE-BACKEND-006", where, wanted=wanted, got=got, hint=hint)
        cells += [Variant(f, precision) for f in makers]
        left |= {f"{f}-{precision}": _UNMADE for f in options.to if f not in makers}
    order = {f: i for i, f in enumerate(options.to)}
    return tuple(sorted(cells, key=lambda cell: order[cell.format])), left


def _describe(plan: _ConvertPlan) -> tuple[str, ...]:
    options = plan.options
    data = options.data or "generated inputs only (no --data)"
    reference = options.reference or "the source's own, else the PyTorch module"
    return (
        f"export    {options.source} -> {options.out}/source",
        *(f"convert   {cell.name} -> {options.out}/artifacts/{cell.name}" for cell in plan.cells),
        *(f"leave out {name}: {reason}" for name, reason in plan.left.items()),
        f"judge     on {data}, against {reference}",
        f"limits    pass <= {plan.limits.pass_flips:.0%} decided flips, "
        f"degraded <= {plan.limits.degraded_flips:.0%}, tensors <= {plan.limits.tensor:g} of scale",
    )


def _work(
    bench: StageContext, plan: _ConvertPlan
) -> tuple[Manifest, dict[str, Report], dict[str, str]]:
    exported = export(bench, plan.options, plan.given)
    model_id = write_identity(bench, exported)
    for name, reason in plan.left.items():
        bench.ui.note(f"{name}: left out, {reason}")
    made, judged, answers = _side_by_side(bench, plan, exported, model_id)
    candidates = [m for m in made if isinstance(m, BuiltCandidate)]
    refused = [_with_formats_that_passed(m, judged) for m in made if isinstance(m, Refused)]
    for format in plan.options.to:  # what an earlier run left is about another conversion
        (bench.root / _repro_path(format)).unlink(missing_ok=True)
    repros = _bisect_failed(bench, refused, judged) if plan.options.bisect else {}
    manifest = _start(bench, plan, exported, model_id)
    whole = plan.options.all_or_nothing
    if whole and (refused or any(j.failed for j in judged)):
        refused += [gate_refusal(j) for j in judged if j.failed]
        return replace_targets(manifest, (), refused), _reports(judged), repros
    golden = golden_for(bench, judged, answers, None, manifest.golden)
    judged = hold_to_golden(bench, manifest, judged, golden)
    if whole and any(j.failed for j in judged):
        refused = [gate_refusal(j) for j in judged if j.failed]
        return promote(bench, manifest, (), refused, golden, answers), _reports(judged), repros
    manifest = promote(bench, manifest, judged, refused, golden, answers)
    for each in candidates:
        bench.stages.finish(f"make {each.cell.name}", each.key)
    return manifest, _reports(judged), repros


def _reports(judged: Sequence[JudgedArtifact]) -> dict[str, Report]:
    return {j.artifact.name: j.report for j in judged}


def _with_formats_that_passed(refused: Refused, judged: list[JudgedArtifact]) -> Refused:
    """A refusal because of an op, with the formats that took the model in this very run."""
    took = dict.fromkeys(str(j.artifact.format) for j in judged if not j.failed)
    if not took or not refused.code.startswith("EDGE-OP-"):
        return refused
    return msgspec.structs.replace(
        refused, hint=f"{refused.hint}; {' and '.join(took)} took the whole model in this run"
    )


def _side_by_side(
    bench: StageContext, plan: _ConvertPlan, exported: Exported, model_id: str
) -> tuple[list[BuiltCandidate | Refused], list[JudgedArtifact], Answers]:
    """Ask the reference, make every cell and judge it, each as soon as what it needs is there.

    The reference is started first: what is wrong with it or the data ends the command early. It
    is asked from this thread, which is the one that a function of the caller's is called in.
    """
    options, crew = plan.options, bench.crew
    candidates = ArtifactBuilder(bench, exported, model_id, options.data, options.via)
    asked: Future[Answers] = Future()
    making: list[Future[BuiltCandidate | Refused]] = []
    judging: list[Future[JudgedArtifact | None]] = []

    def judge(made: Future[BuiltCandidate | Refused]) -> JudgedArtifact | None:
        candidate = made.result()
        if isinstance(candidate, Refused):
            return None
        return gate(bench, candidate.artifact, candidate.root, asked.result(), plan.limits)

    def start_the_rest() -> None:
        making.extend(crew.start(candidates.make, cell) for cell in plan.cells)
        judging.extend(crew.start(judge, made) for made in making)

    try:
        reference = exported.reference or "pt2"
        asked.set_result(ask_reference(bench, options.data, reference, start_the_rest))
    except BaseException as error:
        asked.set_exception(error)
        if isinstance(error, EdgeError) and error.code == "EDGE-WORKER-006":
            crew.finish()  # raises what stopped the reference
        raise
    crew.finish()
    judged = [found for future in judging if (found := future.result())]
    return [future.result() for future in making], judged, asked.result()


def _start(bench: StageContext, plan: _ConvertPlan, exported: Exported, model_id: str) -> Manifest:
    """The manifest to grow: the workspace's own while it is about this very model."""
    old = bench.workspace.manifest if bench.workspace.exists else None
    fresh = new_manifest(exported, model_id, model_name(exported, plan.options.name), old)
    if old is None or old.model_id != model_id or old.signature != exported.signature:
        return fresh
    return msgspec.structs.replace(
        fresh, artifacts=old.artifacts, refused=old.refused, golden=old.golden, reports=old.reports
    )
