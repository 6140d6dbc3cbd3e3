"""What the worker that renders is asked (`ReportRequest`), and what it wrote (`Rendered`)."""

from __future__ import annotations

from edgeserve.types.base import Value

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
