"""The commands and their help. Each one is a thin call into `edgeserve.pipeline` or the Wrapper."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["COMMANDS", "app"]

#: Where each command lives and what it does: a command is imported and built when it is used, which
#: is what keeps ``edgeserve --help`` quick. A test compares the lines with the commands' own.
COMMANDS: dict[str, tuple[str, str]] = {
    "convert": ("make", "Convert a model and prove each artifact against the reference."),
    "validate": ("make", "Ask the gate again: other data, another reference, other limits."),
    "measure": ("make", "Measure time and memory of each artifact, in its own process."),
    "package": ("make", "Seal what passed into one file that the Wrapper opens."),
    "report": ("make", "Write a self-contained HTML report (private: it shows inputs)."),
    "run": ("make", "Run the stages that edgeserve.toml declares, in order."),
    "predict": ("use", "Answer raw inputs with the best proven artifact."),
    "verify": ("use", "Run the golden cases on this very device; print the certificate."),
    "serve": ("serving", "Serve bundles over the Open Inference Protocol."),
    "inspect": ("use", "Say what a bundle or workspace holds, its hashes checked."),
    "env": ("env", "Make an environment for a tool that cannot live beside ours."),
    "doctor": ("info", "Say what works here, what is missing and how to get it."),
    "profiles": ("info", "List device and workload profiles."),
    "explain": ("info", "Tell the longer story of an error code."),
}

_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(TyperGroup):
    """Commands built one at a time, on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"edgeserve.cli.{COMMANDS[cmd_name][0]}")
        single = typer.Typer(
            add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS
        )
        single.command(cmd_name)(module.COMMANDS[cmd_name])
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=_Commands,
    help="Ship a model to every device, with proof that it decides as your server does.",
    rich_markup_mode=None,  # rich costs 70 ms at every start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    epilog="Exit codes: 0 done, 1 a check failed, 2 usage, 3 error. "
    "`edgeserve explain CODE` tells the story behind an error code.",
)


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
