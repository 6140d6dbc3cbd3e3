"""Commands that use a bundle or workspace: predict, verify, inspect."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from edgeserve.cli.app import Json, command, show
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


COMMANDS = {
    "predict": partial(command, predict),
    "verify": partial(command, verify),
    "inspect": partial(command, inspect),
}
