"""The report stage: one self-contained HTML file, rendered in a worker (matplotlib is heavy)."""

from __future__ import annotations

from pathlib import Path

from edgeserve import jobs
from edgeserve.bundle.workspace import Workspace
from edgeserve.pipeline.options import ReportOptions, no_empty
from edgeserve.pipeline.ui import QUIET, Ui
from edgeserve.report.request import Rendered, ReportRequest

__all__ = ["report"]


def report(options: ReportOptions, ui: Ui = QUIET) -> Rendered:
    """Render the report of a workspace.

    Raises:
        UsageError: EDGE-USAGE-005, an empty value.
        BundleError: ``options.out`` is no workspace, or holds other artifacts than were judged.
        ReportError: it could not be rendered.
    """
    no_empty(options)
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
