"""What leaves a workspace: a sealed ``.edge`` file (package), and an HTML report (report).

The report is one self-contained file, rendered in a worker (matplotlib is heavy).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.package import PackageRequest
from edgeserve.package import package as seal
from edgeserve.pipeline.options import PackageOptions, ReportOptions, choice, reject_empty
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.report.request import Rendered, ReportRequest
from edgeserve.types.base import encode
from edgeserve.types.vocabulary import TARGETS

__all__ = ["PackageResult", "package", "report"]


@dataclass(frozen=True)
class PackageResult:
    """The sealed bundle: path, size in bytes, sha256 of the file, model_id and artifact names."""

    path: str
    size: int
    sha256: str
    model_id: str
    artifacts: tuple[str, ...]
    verdicts: dict[str, str]

    def json(self) -> bytes:
        """The ``--json`` object."""
        return encode({"schema": 1, **self.__dict__, "error": None})


def package(options: PackageOptions) -> PackageResult:
    """Write the bundle that ``options`` ask for.

    Raises:
        UsageError: EDGE-USAGE-001 unknown target, -005 an empty value.
        PackageError: nothing may be packaged, or a file changed under our hands.
    """
    reject_empty(options)
    if options.target is not None:
        choice("--target", options.target, TARGETS)
    workspace = Workspace(Path(options.out))
    with workspace.lock():
        manifest = workspace.manifest
        sealed = seal(
            PackageRequest(
                workspace=options.out,
                out=options.bundle,
                name=options.name,
                version=options.version,
                license=options.license,
                target=options.target,
            )
        )
    return PackageResult(
        path=sealed.path,
        size=sealed.size,
        sha256=sealed.sha256,
        model_id=sealed.model_id,
        artifacts=sealed.artifacts,
        verdicts={a.name: str(a.verdict) for a in manifest.artifacts if a.name in sealed.artifacts},
    )


def report(options: ReportOptions, ui: Ui = QUIET) -> Rendered:
    """Render the report of a workspace.

    Raises:
        UsageError: EDGE-USAGE-005, an empty value.
        BundleError: ``options.out`` is no workspace, or holds other artifacts than were judged.
        ReportError: it could not be rendered.
    """
    reject_empty(options)
    workspace = Workspace(Path(options.out))
    for artifact in workspace.manifest.artifacts:
        workspace.local(artifact)  # a report on bytes that are no longer there proves nothing
    target = Path(options.report).absolute()
    request = ReportRequest(workspace=str(workspace.path.absolute()), out=str(target))
    with ui.stage("report"):
        return jobs.run(
            "edgeserve.report.html:render_report",
            request,
            Rendered,
            workspace.logs / "report",
            timeout=300.0,
        )
