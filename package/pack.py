"""The verb: a workspace's proven artifacts, sealed into one file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeserve.bundle import Workspace
from edgeserve.bundle.manifest import write_manifest
from edgeserve.errors import PackageError
from edgeserve.files import LOCAL, Fs
from edgeserve.package.request import Packaged, PackageRequest
from edgeserve.package.select import bundle_manifest
from edgeserve.package.writer import write_bundle
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode
from edgeserve.types.reports import Report

__all__ = ["package"]


def package(request: PackageRequest, fs: Fs = LOCAL) -> Packaged:
    """Write the bundle that ``request`` asks for. Reads the workspace without locking it.

    Raises:
        PackageError: EDGE-PACKAGE-001 to -009 (`edgeserve explain` tells each).
        BundleError: the workspace or its manifest breaks a rule.
        FilesError: EDGE-FILES-001, the bundle cannot be written; an older one is untouched.
    """
    workspace = Workspace(request.workspace)
    out = Path(request.out)
    if out.is_dir():
        raise PackageError(
            "EDGE-PACKAGE-006",
            str(out),
            wanted="a file to write",
            got="a folder",
            hint=f"name the bundle, e.g. -o {out / 'model.edge'}",
        )
    manifest = bundle_manifest(workspace.manifest, request)
    for artifact in manifest.artifacts:
        _check_report(workspace, artifact)
    sha256 = write_bundle(out, write_manifest(manifest), manifest.files, workspace.path, fs)
    return Packaged(
        path=str(out),
        size=out.stat().st_size,
        sha256=sha256,
        model_id=manifest.model_id,
        artifacts=tuple(artifact.name for artifact in manifest.artifacts),
    )


def _check_report(workspace: Workspace, artifact: Artifact) -> None:
    """The verdict in the manifest is the one that the gate gave to these very bytes."""
    path = workspace.reports / f"{artifact.name}.validate.json"
    try:
        report = decode(path.read_bytes(), Report)
        said = f"{report.judgement.verdict} of {report.artifact_sha256}"
    except (OSError, msgspec.MsgspecError):
        said = "no readable report"
    if said != f"{artifact.verdict} of {artifact.sha256}":
        raise PackageError(
            "EDGE-PACKAGE-009",
            f"artifact {artifact.name}",
            wanted=f"a report that says {artifact.verdict} of {artifact.sha256}",
            got=said,
            hint=f"run `edgeserve validate {workspace.path}`, then package",
        )
