"""Promoting artifacts that passed: golden cases, files in their places, and last the manifest.

Golden cases are made once for the artifacts kept, and for as many of them as there are any for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeserve.errors import ValidateError
from edgeserve.files import staged, write_atomic
from edgeserve.pipeline import manifests
from edgeserve.pipeline.judge import JudgedArtifact
from edgeserve.pipeline.stage_context import StageContext, stage_key
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import encode, plain
from edgeserve.types.manifest import Manifest
from edgeserve.types.samples import Golden
from edgeserve.validate.requests import Answers, GoldenRequest, LocatedArtifact

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
    manifest = manifests.replace_targets(manifest, artifacts, refusals)
    for each in judged:
        if not each.failed:
            manifest = manifests.with_report(manifest, manifests.summary(each.report))
    manifest = msgspec.structs.replace(manifest, golden=golden, reference=answers.reference)
    manifest = manifests.with_files(manifest, bench.workspace)
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
