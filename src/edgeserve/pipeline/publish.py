"""What leaves a workspace: a sealed ``.edge`` file (package), and an HTML report (report).

The report is one self-contained file, rendered in a worker (matplotlib is heavy).
"""

from __future__ import annotations

from pathlib import Path

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.options import check_options
from edgeserve.package import Packaged
from edgeserve.package import package as write_package
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.report.request import Rendered, ReportRequest
from edgeserve.types.options import PackageOptions, ReportOptions


def package(options: PackageOptions) -> Packaged:
    """Write the bundle that ``options`` ask for.

    Raises:
        UsageError: EDGE-USAGE-001 unknown target, -005 an empty value.
        PackageError: nothing may be packaged, or a file changed under our hands.
    """
    check_options(options)
    with Workspace(Path(options.out)).lock():
        return write_package(options)


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
