"""Promoting artifacts that passed: golden cases, files in their places, and last the manifest.

The pipeline makes a manifest of an export, and changes small parts of it.

Golden cases are made once for the artifacts kept, and for as many of them as there are any for.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from edgeserve import __version__
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import ValidateError
from edgeserve.files import describe, staged, write_atomic
from edgeserve.pipeline.judge import JudgedArtifact
from edgeserve.pipeline.stage_context import StageContext, stage_key
from edgeserve.types.artifact import Artifact, FileEntry, Refused
from edgeserve.types.base import Number, encode, plain
from edgeserve.types.manifest import FORMAT_VERSION, Manifest, ReportSummary
from edgeserve.types.reports import Report
from edgeserve.types.samples import Golden
from edgeserve.types.source import Exported
from edgeserve.validate.requests import Answers, GoldenRequest, LocatedArtifact

#: The oldest Wrapper that reads what this version writes.
_MIN_WRAPPER = "0.1.0"


def model_name(exported: Exported, wanted: str | None) -> str:
    """A name for the model: the one asked for, else the source's module or file."""
    if wanted:
        return wanted
    location = exported.source.location.rstrip("/")
    if exported.source.kind == "factory":
        location = location.partition(":")[0].replace(".", "/")
    if exported.source.kind == "module":
        location = location.rpartition(".")[2]
    last = re.split(r"[:/\\]", location)[-1]
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(last).stem).strip("-._")
    return clean[:128] or "model"


def new_manifest(exported: Exported, model_id: str, name: str, old: Manifest | None) -> Manifest:
    """A manifest without artifacts for what was exported; the version is carried on."""
    return Manifest(
        edgeserve=FORMAT_VERSION,
        name=name,
        version=old.version if old else 1,
        min_wrapper=_MIN_WRAPPER,
        model_id=model_id,
        task=exported.task,
        signature=exported.signature,
        processing=exported.processing,
        labels=exported.labels,
        tools={"edgeserve": __version__, **exported.tools},
        license=old.license if old else None,
    )


def replace_targets(
    manifest: Manifest, artifacts: Iterable[Artifact], refused: Iterable[Refused]
) -> Manifest:
    """The manifest with these cells in the place of any older ones of the same name."""
    new_artifacts, new_refused = tuple(artifacts), tuple(refused)
    names = {a.name for a in new_artifacts} | {_target_name(r) for r in new_refused}
    kept = (a for a in manifest.artifacts if a.name not in names)
    kept_refused = (r for r in manifest.refused if _target_name(r) not in names)
    gone = {_target_name(r) for r in new_refused}
    reports = tuple(r for r in manifest.reports if f"{r.format}-{r.precision}" not in gone)
    return msgspec.structs.replace(
        manifest,
        artifacts=tuple(sorted((*kept, *new_artifacts), key=lambda a: a.name)),
        refused=tuple(sorted((*kept_refused, *new_refused), key=_target_name)),
        reports=reports,
    )


def _target_name(refused: Refused) -> str:
    return f"{refused.format}-{refused.precision}"


def _with_files(manifest: Manifest, workspace: Workspace) -> Manifest:
    """The manifest with ``files`` listing what `package` may copy."""
    identity = describe(workspace.path, "identity.json")
    entries = {entry.path: entry for entry in (*_members(manifest), identity)}
    return msgspec.structs.replace(manifest, files=tuple(entries[path] for path in sorted(entries)))


def _members(manifest: Manifest) -> Iterable[FileEntry]:
    yield from manifest.processing.assets
    for artifact in manifest.artifacts:
        yield from artifact.files
    for case in manifest.golden.cases if manifest.golden else ():
        yield case.input
        if case.outputs is not None:
            yield case.outputs


def summary(report: Report) -> ReportSummary:
    """The gate's report in numbers."""
    figures: dict[str, Number] = {
        "max_abs": max((float(o.max_abs) for o in report.outputs), default=0.0),
        "max_relative": max((float(o.relative) for o in report.outputs), default=0.0),
    }
    stats = report.decisions
    if stats is not None:
        figures |= {
            "inputs": float(stats.inputs),
            "groups": float(stats.groups),
            "raw_flips": float(stats.raw.count),
            "decided_inputs": float(stats.decided.n),
            "decided_flips": float(stats.decided.count),
            "decided_upper": stats.decided.upper,
            "minimum_harm": stats.minimum_harm,
        }
    return ReportSummary(
        format=report.format,
        precision=report.precision,
        verdict=report.judgement.verdict,
        figures=figures,
    )


def _with_report(manifest: Manifest, new: ReportSummary) -> Manifest:
    """The manifest with this summary in the place of an older one; measured figures are kept."""
    name = f"{new.format}-{new.precision}"
    kept = {k: v for k, v in _summary(manifest, name).items() if k.endswith("_ms")}
    merged = msgspec.structs.replace(new, figures={**kept, **new.figures})
    return _put(manifest, merged)


def with_figures(manifest: Manifest, cell: str, figures: Mapping[str, Number]) -> Manifest:
    """The manifest with further figures noted for one artifact."""
    artifact = manifest.artifact(cell)
    if artifact is None or artifact.verdict is None:
        return manifest
    return _put(
        manifest,
        ReportSummary(
            format=artifact.format,
            precision=artifact.precision,
            verdict=artifact.verdict,
            figures={**_summary(manifest, cell), **figures},
        ),
    )


def _summary(manifest: Manifest, cell: str) -> dict[str, Number]:
    found = (r.figures for r in manifest.reports if f"{r.format}-{r.precision}" == cell)
    return dict(next(found, {}))


def _put(manifest: Manifest, summary: ReportSummary) -> Manifest:
    others = (
        r
        for r in manifest.reports
        if (r.format, r.precision) != (summary.format, summary.precision)
    )
    reports = sorted((*others, summary), key=lambda r: (r.format, r.precision))
    return msgspec.structs.replace(manifest, reports=tuple(reports))


#: The code of "no input is far enough from flipping".
_NONE_FAR_ENOUGH = "EDGE-VALIDATE-009"


def golden_cases(
    bench: StageContext,
    answers: Answers,
    kept: Sequence[JudgedArtifact],
    given: str | None,
    known: Golden | None,
) -> Golden | None:
    """Golden cases far enough from flipping for the artifacts kept; made once for the same ones.

    Where one artifact moves the answers so far that no input is left, the cases are made for the
    others: better proof for those than for none. On a device the one left out has to answer the
    same cases, and is not used where it cannot.

    Returns:
        None where no generated input is far enough for any of them: the verdicts stand, but
        `package` will ask for ``validate --golden DIR``.

    Raises:
        ValidateError: none of the inputs *given* is far enough from flipping.
    """
    folder = str(Path(given).absolute()) if given is not None else None
    key, given_key = _keys(answers, kept, folder)
    if known is not None and folder is None:
        if bench.stages.done("golden", key) or bench.stages.done("golden-given", given_key):
            return known
        if known.origin == "given":
            bench.ui.note("the golden cases given earlier are about other answers: made anew")
    golden = _made(bench, answers, kept, folder)
    if golden is None:
        return None
    bench.stages.finish("golden", key)
    bench.stages.forget("golden-given")
    if folder is not None:
        bench.stages.finish("golden-given", given_key)
    if golden.note:
        bench.ui.note(f"golden cases: {golden.note}")
    return golden


def _keys(answers: Answers, kept: Sequence[JudgedArtifact], folder: str | None) -> tuple[str, str]:
    """Stage keys: of cases generated or given for these artifacts, and of given ones for any."""
    about = (answers.program_key, answers.reference_key)
    shas = sorted(j.artifact.sha256 for j in kept)
    return stage_key(*about, _error(kept), folder, shas), stage_key(*about)


def _error(kept: Sequence[JudgedArtifact]) -> float:
    return max((plain(j.report.error) for j in kept), default=0.0)


def _made(
    bench: StageContext, answers: Answers, kept: Sequence[JudgedArtifact], folder: str | None
) -> Golden | None:
    """Cases for all; failing that for as many as there are any for; None where that is none."""
    by_error = sorted(kept, key=lambda j: plain(j.report.error))
    golden, refused = _try(bench, answers, by_error, folder)
    if refused is None:
        return golden
    # Whatever fits some fits fewer as well, so halving finds how many. What succeeds last is what
    # lies in the workspace, and each success is of more than the one before.
    fits, too_many = 0, len(by_error)
    while too_many - fits > 1:
        count = (fits + too_many) // 2
        made, _ = _try(bench, answers, by_error[:count], folder)
        if made is None:
            too_many = count
        else:
            golden, fits = made, count
    if golden is not None:
        return _without(golden, by_error[fits:])
    if folder is not None:
        raise refused
    bench.ui.note(f"no golden cases: {refused.message}; {refused.hint}")
    return None


def _try(
    bench: StageContext, answers: Answers, some: Sequence[JudgedArtifact], folder: str | None
) -> tuple[Golden, None] | tuple[None, ValidateError]:
    """The cases, or the error that says that no input is far enough from flipping."""
    request = GoldenRequest(
        source_folder=str(bench.root / "source"),
        out=str(bench.root),
        reference=answers.reference,
        folder=bench.path[0],
        given=folder,
        error=_error(some),
        artifacts=tuple(
            LocatedArtifact(artifact=j.artifact, root=str(j.root.absolute())) for j in some
        ),
        caller=bench.caller.name if bench.caller else "",
    )
    verb = "edgeserve.validate.golden.make:make_golden"
    try:
        return bench.work("golden cases", verb, request, Golden, "golden"), None
    except ValidateError as refused:
        if refused.code != _NONE_FAR_ENOUGH:
            raise
        return None, refused


def _without(golden: Golden, left_out: Sequence[JudgedArtifact]) -> Golden:
    """The cases, with a word on the artifacts that they were not chosen for."""
    left = ", ".join(j.artifact.name for j in left_out)
    reason = f"none is far enough from flipping for {left}: a device uses it only if it holds them"
    return msgspec.structs.replace(golden, note="; ".join(filter(None, (golden.note, reason))))


def golden_for(
    bench: StageContext,
    judged: Sequence[JudgedArtifact],
    answers: Answers,
    given: str | None,
    known: Golden | None,
) -> Golden | None:
    """Golden cases for the artifacts kept; the known ones where nothing is, or none can be made.

    A server that answers the same to everything gives no case that could prove anything.
    """
    kept = tuple(j for j in judged if not j.failed and not j.reference_still)
    return golden_cases(bench, answers, kept, given, known) if kept else known


def promote(
    bench: StageContext,
    manifest: Manifest,
    judged: Sequence[JudgedArtifact],
    refused: Sequence[Refused],
    golden: Golden | None,
    answers: Answers,
) -> Manifest:
    """Move every judged artifact to its place and write the manifest."""
    placed = [_place(bench, j) for j in judged]
    artifacts = [p for p in placed if isinstance(p, Artifact)]
    refusals = [*refused, *(p for p in placed if isinstance(p, Refused))]
    manifest = replace_targets(manifest, artifacts, refusals)
    for each in judged:
        if not each.failed:
            manifest = _with_report(manifest, summary(each.report))
    manifest = msgspec.structs.replace(manifest, golden=golden, reference=answers.reference)
    manifest = _with_files(manifest, bench.workspace)
    bench.workspace.write_manifest(manifest)
    return manifest


def _place(bench: StageContext, judged: JudgedArtifact) -> Artifact | Refused:
    """Move one judged artifact to its place; returns what the manifest says of it."""
    name = f"{judged.artifact.name}.validate.json"
    write_atomic(bench.root / "reports" / name, encode(judged.report))
    if judged.failed:
        _move(bench, judged, "failed")
        return gate_refusal(judged)
    artifact = _move(bench, judged, "artifacts")
    bench.stages.finish(f"judge {artifact.name}", judged.key)
    return artifact


def _move(bench: StageContext, judged: JudgedArtifact, into: str) -> Artifact:
    """Move the files to ``{into}/{name}`` unless they lie there; what lay there goes."""
    folder = f"{into}/{judged.artifact.name}"
    moved = judged.artifact.moved(folder)
    if judged.root == bench.root and judged.artifact.folder == folder:
        return moved
    with staged(bench.root / folder) as stage:
        for old, new in zip(judged.artifact.files, moved.files, strict=True):
            target = stage / new.path[len(folder) + 1 :]
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(judged.root / old.path, target)
    other = "failed" if into == "artifacts" else "artifacts"
    shutil.rmtree(bench.root / other / moved.name, ignore_errors=True)
    return moved


def gate_refusal(judged: JudgedArtifact) -> Refused:
    """What the manifest says of an artifact that failed the gate."""
    artifact, reasons = judged.artifact, judged.judgement.reasons
    return Refused(
        format=artifact.format,
        precision=artifact.precision,
        verdict="fail",
        code=reasons[0].code,
        message="; ".join(reason.message for reason in reasons),
        hint=f"`edgeserve explain {reasons[0].code}`; `edgeserve report` shows the worst inputs",
        path=f"failed/{artifact.name}",
    )
