"""Commands on the installation and the catalogues: doctor, env, profiles, explain."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from edgeserve.cli.app import Json, command, print_json, show


def doctor(json_: Json = False) -> int:
    """Check this installation: what works, what is missing, how to get it."""
    from edgeserve.pipeline.doctor import examine

    found = examine()
    if json_:
        print_json(found.json())
    else:
        for check in found.checks:
            mark = {True: "ok  ", False: "FAIL", None: "-   "}[check.ok]
            print(f"{mark} {check.name:<18} {check.detail}")
            if check.hint:
                print(f"     {'':<18} {check.hint}")
    return 0 if found.ok else 1


def profiles(
    name: Annotated[
        str | None, typer.Argument(help="Name of one profile, to print in full.")
    ] = None,
    json_: Json = False,
) -> int:
    """List device and workload profiles."""
    from edgeserve.cli.tables import print_profiles
    from edgeserve.pipeline.options import list_profiles
    from edgeserve.types.base import encode

    found = list_profiles(name)
    document = {"schema": 1, "profiles": list(found), "error": None}
    shown = partial(print_profiles, found, whole=name is not None)
    return show(json_, lambda: encode(document), shown)


def explain(
    code: Annotated[
        str | None, typer.Argument(help="EDGE-AREA-NNN; without one, all are listed.")
    ] = None,
    json_: Json = False,
) -> int:
    """Explain an error code."""
    from edgeserve import codes

    found = [codes.explain(code)] if code else list(codes.catalogue().values())
    if json_:
        print_json({"schema": 1, "codes": [asdict(each) for each in found], "error": None})
    elif code is None:
        for each in found:
            print(f"{each.code}  {each.title}")
    else:
        print(f"{found[0].code}: {found[0].title}\n")
        print(textwrap.fill(found[0].story, 88))
        print("\n" + textwrap.fill(f"What to do: {found[0].fix}", 88))
    return 0


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


COMMANDS = {
    "doctor": partial(command, doctor),
    "env": partial(command, env),
    "profiles": partial(command, profiles),
    "explain": partial(command, explain),
}
