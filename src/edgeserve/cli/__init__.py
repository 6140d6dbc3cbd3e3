"""The ``edgeserve`` command. Importing this loads the standard library; `main` loads typer."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["main"]

_NO_TYPER = """\
edgeserve: the command line needs typer and rich, which are not installed.
  {command}
(The library itself works without them: from edgeserve import Wrapper)"""


def main() -> None:
    """Run the command line and exit: 0 done, 1 a check failed, 2 usage, 3 error."""
    try:
        from edgeserve.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        from edgeserve.installation import install_command

        print(_NO_TYPER.format(command=install_command("cli")), file=sys.stderr)
        sys.exit(3)
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot spell is still said
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if "--json" not in sys.argv:
        app(prog_name="edgeserve")
    sys.exit(_json(app))


def _json(app: Any) -> int:
    """Run with typer's own errors (unknown option, missing argument) as JSON too."""
    from edgeserve.cli.app import usage

    try:
        return app(prog_name="edgeserve", standalone_mode=False) or 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return usage(error.format_message(), as_json=True)
