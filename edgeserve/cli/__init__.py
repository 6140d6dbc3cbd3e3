"""The ``edgeserve`` command. Importing this loads the standard library; `main` loads typer."""

from __future__ import annotations

import sys

__all__ = ["main"]

_NO_TYPER = """\
edgeserve: the command line needs typer and rich, which are not installed.
  pip install 'edgeserve[cli]'
(The library itself works without them: from edgeserve import Wrapper)"""


def main() -> None:
    """Run the command line and exit: 0 done, 1 a check failed, 2 usage, 3 error."""
    try:
        from edgeserve.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        print(_NO_TYPER, file=sys.stderr)
        sys.exit(3)
    app(prog_name="edgeserve")
