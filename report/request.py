"""What to render (`ReportRequest`), what was written (`Rendered`), and the call that does it."""

from __future__ import annotations

from edgeserve.types.base import Value

__all__ = ["VERB", "Rendered", "ReportRequest", "report"]

VERB = "edgeserve.report.html:render_report"


class ReportRequest(Value, frozen=True):
    """Render the report of a workspace.

    Attributes:
        workspace: Folder of the workspace.
        out: File to write.
    """

    workspace: str
    out: str


class Rendered(Value, frozen=True):
    """A report that was written.

    Attributes:
        path: The file.
        size: Its size in bytes.
    """

    path: str
    size: int


def report(request: ReportRequest) -> Rendered:
    """Render a report in this process.

    Raises:
        ReportError: EDGE-REPORT-001 to -003, see `edgeserve.report.html.render_report`.
        FilesError: the file cannot be written.
    """
    from edgeserve.report.html import render_report

    return render_report(request)
