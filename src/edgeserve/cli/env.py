"""The command that manages environments for external exporters: env."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from edgeserve.cli.app import Json, command, show


def env(
    action: Annotated[str, typer.Argument(metavar="create", help="The action: create.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the environment: optimum.")],
    index_url: Annotated[str | None, typer.Option(help="URL of another package index.")] = None,
    json_: Json = False,
) -> int:
    """Manage environments for external exporters (optimum)."""
    from edgeserve.cli.app import terminal_ui
    from edgeserve.options import check_choice
    from edgeserve.pipeline.env import create

    check_choice("env", action, ("create",))
    made = create(name, terminal_ui(), ("--index-url", index_url) if index_url else ())
    shown = f"{made.name}  {'made in' if made.made else 'is in'} {made.folder}"
    return show(json_, made.json, lambda: print(shown))


COMMANDS = {"env": partial(command, env)}
