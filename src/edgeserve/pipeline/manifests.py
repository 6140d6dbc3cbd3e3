"""Manifests as the pipeline makes them: a fresh one from an export, and small changes to one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from edgeserve import __version__
from edgeserve.bundle.workspace import Workspace
from edgeserve.files import describe
from edgeserve.types.artifact import Artifact, FileEntry, Refused
from edgeserve.types.base import Number
from edgeserve.types.manifest import FORMAT_VERSION, Manifest, ReportSummary
from edgeserve.types.reports import Report
from edgeserve.types.source import Exported

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


def with_files(manifest: Manifest, workspace: Workspace) -> Manifest:
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


def with_report(manifest: Manifest, new: ReportSummary) -> Manifest:
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
