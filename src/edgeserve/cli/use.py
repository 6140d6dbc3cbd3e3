"""Commands that use a bundle or workspace, and those on the installation and the catalogues."""

from __future__ import annotations

import os
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from edgeserve.cli.app import Json, command, print_json, show
from edgeserve.errors import InputError

Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="A .edge file or a workspace.")]
Format = Annotated[str | None, typer.Option("--format", help="Only this format.")]
Precision = Annotated[str | None, typer.Option(help="Only this precision.")]
Delegate = Annotated[str | None, typer.Option(help="Only this delegate.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Fail if the first choice of artifact and delegate cannot be used."
    ),
]


def predict(
    bundle: Bundle,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Raw inputs.")],
    format_: Format = None,
    precision: Precision = None,
    delegate: Delegate = None,
    strict: Strict = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the runtime.")] = None,
    json_: Json = False,
) -> int:
    """Predict raw inputs with the best validated artifact."""
    from edgeserve.cli.tables import print_answers
    from edgeserve.types.base import encode
    from edgeserve.wrapper import Wrapper

    with Wrapper(bundle, format_, precision, delegate, strict, threads) as model:
        answers = model.predict([_input(path, model.manifest.task) for path in inputs])
    inputs = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in inputs]
    pairs = [{"input": i, "answer": a} for i, a in zip(inputs, answers, strict=True)]
    document = {"schema": 1, "answers": pairs, "error": None}
    return show(json_, lambda: encode(document), lambda: print_answers(inputs, answers))


def verify(bundle: Bundle, json_: Json = False) -> int:
    """Run the golden cases on this device and print a certificate."""
    from edgeserve.cli.tables import print_certificate
    from edgeserve.types.base import encode
    from edgeserve.wrapper import verify as prove

    certificate = prove(bundle)
    document = {"schema": 1, "certificate": certificate, "error": None}
    show(json_, lambda: encode(document), lambda: print_certificate(certificate))
    return 0 if certificate.verdict == "pass" else 1


def inspect(
    bundle: Bundle,
    graph: Annotated[
        bool, typer.Option("--graph", help="Also list the operators of each artifact.")
    ] = False,
    json_: Json = False,
) -> int:
    """List the contents of a bundle or workspace and check all hashes."""
    from edgeserve.cli.tables import print_inspection
    from edgeserve.pipeline.inspect import inspect as stage

    found = stage(bundle, graph=graph)
    return show(json_, found.json, lambda: print_inspection(found))


def _input(path: str, task: str) -> object:
    """A path as the Wrapper takes it; for the ``tensors`` task the arrays of an ``.npz``."""
    if task != "tensors" or not path.endswith(".npz"):
        return path
    import zipfile

    from edgeserve.data import read_arrays

    try:
        return read_arrays(Path(path))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        wanted = "an .npz of named tensors without pickled objects"
        got = str(error)
        hint = "write it with numpy.savez(path, NAME=array, ...)"
        raise InputError("EDGE-INPUT-007", path, wanted=wanted, got=got, hint=hint) from error


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
    from edgeserve.pipeline.doctor import create

    check_choice("env", action, ("create",))
    made = create(name, terminal_ui(), ("--index-url", index_url) if index_url else ())
    shown = f"{made.name}  {'made in' if made.made else 'is in'} {made.folder}"
    return show(json_, made.json, lambda: print(shown))


COMMANDS = {
    "predict": partial(command, predict),
    "verify": partial(command, verify),
    "inspect": partial(command, inspect),
    "doctor": partial(command, doctor),
    "env": partial(command, env),
    "profiles": partial(command, profiles),
    "explain": partial(command, explain),
}
