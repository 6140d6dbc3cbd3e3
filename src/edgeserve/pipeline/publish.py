"""What leaves a workspace: a sealed ``.edge`` file (package), and an HTML report (report).

The report is one self-contained file, rendered in a worker (matplotlib is heavy).
"""

from __future__ import annotations

from pathlib import Path

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.errors import PackageError
from edgeserve.options import check_options
from edgeserve.package import Packaged
from edgeserve.package import package as write_package
from edgeserve.package.writer import bundle_manifest
from edgeserve.pipeline.judge import proof_request
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.report.request import Rendered, ReportRequest
from edgeserve.types.artifact import Artifact
from edgeserve.types.manifest import Manifest
from edgeserve.types.options import PackageOptions, ReportOptions
from edgeserve.wrapper.certificate import VERB, Proof


def package(options: PackageOptions) -> Packaged:
    """Write the bundle that ``options`` ask for.

    Raises:
        UsageError: EDGE-USAGE-001 unknown target, -005 an empty value.
        PackageError: nothing may be packaged, a file changed under our hands, or EDGE-PACKAGE-010,
            an artifact does not hold the golden cases on this machine.
    """
    check_options(options)
    workspace = Workspace(Path(options.out))
    with workspace.lock():
        manifest = bundle_manifest(workspace.manifest, options)
        for artifact in manifest.artifacts:
            _check_proof(workspace, manifest, artifact)
        return write_package(options)


def _check_proof(workspace: Workspace, manifest: Manifest, artifact: Artifact) -> None:
    """The golden proof, on the very files that go into the bundle.

    Raises:
        PackageError: EDGE-PACKAGE-010.
    """
    root = workspace.local(artifact)
    request = proof_request(manifest, workspace.path.absolute(), artifact, root)
    log = workspace.logs / f"prove-{artifact.name}"
    proof = jobs.run(VERB, request, Proof, log, timeout=600.0, imports=())
    if proof.wrong:
        raise PackageError(
            "EDGE-PACKAGE-010",
            f"artifact {artifact.name}",
            wanted=f"{proof.total} of {proof.total} golden cases answered as the reference did",
            got=f"{proof.passed}; {proof.wrong}",
            hint=f"run `edgeserve validate {workspace.path}` on this machine, then package what"
            " is left",
        )


def report(options: ReportOptions, ui: Ui = QUIET) -> Rendered:
    """Render the report of a workspace.

    Raises:
        UsageError: EDGE-USAGE-005, an empty value.
        BundleError: ``options.out`` is no workspace, or holds other artifacts than were judged.
        ReportError: it could not be rendered.
    """
    check_options(options)
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
