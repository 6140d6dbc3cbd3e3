"""Putting judged artifacts where they belong, and writing the manifest that says so, last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import msgspec

from edgeserve.files import staged, write_atomic
from edgeserve.pipeline import manifests
from edgeserve.pipeline.bench import Bench
from edgeserve.pipeline.golden import golden_cases
from edgeserve.pipeline.judging import Judged
from edgeserve.types.artifact import Artifact, Refused
from edgeserve.types.base import encode
from edgeserve.types.manifest import Manifest
from edgeserve.types.samples import Golden
from edgeserve.validate.request import Answers

__all__ = ["golden_for", "refused_by_gate", "settle"]


def golden_for(
    bench: Bench,
    judged: Sequence[Judged],
    answers: Answers,
    given: str | None,
    known: Golden | None,
) -> Golden | None:
    """Golden cases for the artifacts kept; the known ones where nothing is, or none can be made.

    A server that answers the same to everything gives no case that could prove anything.
    """
    kept = tuple(j for j in judged if not j.failed and not j.reference_still)
    return golden_cases(bench, answers, kept, given, known) if kept else known


def settle(
    bench: Bench,
    manifest: Manifest,
    judged: Sequence[Judged],
    refused: Sequence[Refused],
    golden: Golden | None,
    answers: Answers,
) -> Manifest:
    """Move every judged artifact to its place and write the manifest."""
    placed = [_place(bench, j) for j in judged]
    artifacts = [p for p in placed if isinstance(p, Artifact)]
    refusals = [*refused, *(p for p in placed if isinstance(p, Refused))]
    manifest = manifests.with_cells(manifest, artifacts, refusals)
    for each in judged:
        if not each.failed:
            manifest = manifests.with_report(manifest, manifests.summary(each.report))
    manifest = msgspec.structs.replace(manifest, golden=golden, reference=answers.reference)
    manifest = manifests.with_files(manifest, bench.workspace)
    bench.workspace.write_manifest(manifest)
    return manifest


def _place(bench: Bench, judged: Judged) -> Artifact | Refused:
    """Move one judged artifact to its place; returns what the manifest says of it."""
    name = f"{judged.artifact.name}.validate.json"
    write_atomic(bench.root / "reports" / name, encode(judged.report))
    if judged.failed:
        _move(bench, judged, "failed")
        return refused_by_gate(judged)
    artifact = _move(bench, judged, "artifacts")
    bench.stages.finish(f"judge {artifact.name}", judged.key)
    return artifact


def _move(bench: Bench, judged: Judged, into: str) -> Artifact:
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


def refused_by_gate(judged: Judged) -> Refused:
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
