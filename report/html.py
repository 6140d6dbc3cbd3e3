"""The verb `render_report`: read a workspace, write one HTML file that needs nothing but itself."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from edgeserve.errors import ReportError
from edgeserve.files import write_atomic
from edgeserve.report.build import build
from edgeserve.report.load import load
from edgeserve.report.page import Page
from edgeserve.report.request import Rendered, ReportRequest
from edgeserve.report.thumbs import Thumbnails

__all__ = ["render_report"]


def render_report(request: ReportRequest) -> Rendered:
    """Render a workspace's report; the same workspace gives the same bytes.

    Raises:
        ReportError: EDGE-REPORT-001 no workspace, -002 a file in it is unreadable, -003 packages
            that draw it are missing.
        BundleError: the manifest breaks its rules.
        FilesError: EDGE-FILES-001, the file cannot be written.
    """
    _need()
    workspace = Path(request.workspace)
    page = build(load(workspace), Thumbnails(workspace))
    data = _html(page).encode("utf-8")
    write_atomic(Path(request.out), data)
    return Rendered(path=request.out, size=len(data))


def _need() -> None:
    try:
        import jinja2
        import matplotlib
    except ImportError as error:
        raise ReportError(
            "EDGE-REPORT-003",
            error.name or "a package",
            wanted="jinja2 and matplotlib",
            got="not installed",
            hint="pip install 'edgeserve[report]'",
        ) from error
    del jinja2, matplotlib


def _html(page: Page) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    css = Markup(_template("report.css"))  # ours alone: no text of the user's is in it
    return environment.get_template("report.html.j2").render(page=page, css=css)


def _template(name: str) -> str:
    return (resources.files("edgeserve.report") / "templates" / name).read_text("utf-8")
