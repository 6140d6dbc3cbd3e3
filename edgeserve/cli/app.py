"""The commands and their help. Each one is a thin call into `edgeserve.pipeline` or the Wrapper."""

from __future__ import annotations

import typer

from edgeserve.cli import info, make, use

__all__ = ["app"]

app = typer.Typer(
    help="Ship a model to every device, with proof that it decides as your server does.",
    rich_markup_mode=None,  # rich costs 70 ms at every start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a check failed, 2 usage, 3 error. "
    "`edgeserve explain CODE` tells the story behind an error code.",
)

for _room in (make, use, info):
    for _name, _command in _room.COMMANDS.items():
        app.command(_name)(_command)


def _version(wanted: bool) -> None:
    if wanted:
        from edgeserve import __version__

        print(f"edgeserve {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Options before the command."""
