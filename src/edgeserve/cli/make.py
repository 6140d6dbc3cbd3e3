"""Commands that make things (convert, validate, measure, package, report, run), and serve."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeserve.cli.app import Json, command, print_json, show, terminal_ui
from edgeserve.cli.options import command_of, given_options, parameters, with_parameters
from edgeserve.options import definitions
from edgeserve.serve.options import (
    EmitSettings,
    RaySettings,
    ServeCommand,
    ServeOptions,
    option_error,
)
from edgeserve.types.options import (
    ConvertOptions,
    MeasureOptions,
    PackageOptions,
    ReportOptions,
    ValidateOptions,
)

if TYPE_CHECKING:
    from edgeserve.pipeline.result import StageResult


def _finish(result: StageResult, as_json: bool) -> int:
    """Print what came out and return the exit code."""
    from edgeserve.cli.tables import print_outcome

    show(as_json, result.json, lambda: print_outcome(result))
    return result.exit_code


def convert(options: ConvertOptions, as_json: bool) -> int:
    """Convert a model and validate each artifact against the reference."""
    from edgeserve.pipeline.convert import convert as stage

    return _finish(stage(options, terminal_ui()), as_json)


def validate(options: ValidateOptions, as_json: bool) -> int:
    """Validate again with other data, reference or limits."""
    from edgeserve.pipeline.validate import validate as stage

    return _finish(stage(options, terminal_ui()), as_json)


def measure(options: MeasureOptions, as_json: bool) -> int:
    """Measure time and memory of each artifact, in its own process."""
    from edgeserve.cli.tables import print_measurements
    from edgeserve.pipeline.measure import measure as stage

    measured = stage(options, terminal_ui())
    return show(as_json, measured.json, lambda: print_measurements(measured))


def package(options: PackageOptions, as_json: bool) -> int:
    """Write the .edge package (all artifacts that did not fail)."""
    from edgeserve.cli.tables import print_packaged
    from edgeserve.pipeline.publish import package as stage

    packaged = stage(options)
    return show(as_json, packaged.json, lambda: print_packaged(packaged))


def report(options: ReportOptions, as_json: bool) -> int:
    """Write a self-contained HTML report (private: it shows inputs)."""
    from edgeserve.pipeline.publish import report as stage

    rendered = stage(options, terminal_ui())
    document = {"schema": 1, "path": rendered.path, "size": rendered.size, "error": None}
    shown = f"{rendered.path}  {rendered.size / 1024:.0f} KiB"
    return show(as_json, lambda: document, lambda: print(shown))


def run(
    config: Annotated[
        str, typer.Argument(metavar="[FILE]", help="TOML file that declares the stages.")
    ] = "edgeserve.toml",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the file, for editors.")
    ] = False,
    json_: Json = False,
) -> int:
    """Run the stages that edgeserve.toml declares, in order."""
    from edgeserve.pipeline.run import config_schema, run_config

    if schema:
        print_json(config_schema())
        return 0
    result = run_config(Path(config), terminal_ui())
    sys.stderr.flush()
    return _finish(result, json_)


_RAY, _EMIT = set(definitions(RaySettings)), set(definitions(EmitSettings))


def _listed() -> list[inspect.Parameter]:
    """All options once; those of Ray and of files have no default, so that a given one is seen."""
    wider = {p.name: p for kind in (EmitSettings, RaySettings) for p in parameters(kind)}
    unset = [parameter.replace(default=None) for parameter in wider.values()]
    return [*parameters(ServeOptions), *parameters(ServeCommand), *unset]


def serve(**values: Any) -> int:
    """Serve bundles over the Open Inference Protocol."""
    asked = ServeCommand(**given_options(ServeCommand, values))
    if asked.engine not in ("own", "ray"):
        raise option_error("engine", "own or ray", repr(asked.engine))
    fields = given_options(ServeOptions, values)
    wider = {name: v for name in _RAY | _EMIT if (v := values[name]) is not None}
    if asked.emit is None:
        files = {name: wider[name] for name in (_EMIT - _RAY) & wider.keys()}
        files |= {"out": asked.out} if asked.out is not None else {}
        files |= {"force": True} if asked.force else {}
        _reject(files, "--emit, which writes files")
    elif asked.engine == "ray":
        wanted = "own with --emit: the files are of Kubernetes or KServe"
        raise option_error("engine", wanted, "ray")
    if asked.engine == "own":
        of_ray = {name: wider[name] for name in (_RAY - _EMIT) & wider.keys()}
        _reject(of_ray, "--engine ray, which runs replicas")
    if asked.emit is not None:
        return _emit(asked, asked.emit, fields | wider, bool(values["json_"]))
    if asked.engine == "ray":
        from edgeserve.serve.ray import ray_options, run

        run(ray_options(fields | wider))
        return 0
    _reject(wider, "--engine ray or --emit, which has replicas")
    from edgeserve.serve import serve as run_server

    run_server(ServeOptions(**fields))
    return 0


def _reject(given: Mapping[str, Any], of: str) -> None:
    """Reject options that nothing would read."""
    for name in sorted(given):
        raise option_error(name, f"{of}, or no such option", repr(given[name]))


def _emit(asked: ServeCommand, kind: str, fields: dict[str, Any], as_json: bool) -> int:
    from edgeserve.serve.emit import Deployment, emit

    out = "." if asked.out is None else asked.out
    if not out:
        raise option_error("out", "a folder", "an empty text")
    written = emit(kind, Deployment(**fields), out, asked.force)
    paths = [str(Path(out, name)) for name in written]
    document = {"schema": 1, "out": out, "files": paths}
    return show(as_json, lambda: document, lambda: print("\n".join(paths)))


COMMANDS = {
    "convert": partial(command_of, ConvertOptions, convert),
    "validate": partial(command_of, ValidateOptions, validate),
    "measure": partial(command_of, MeasureOptions, measure),
    "package": partial(command_of, PackageOptions, package),
    "report": partial(command_of, ReportOptions, report),
    "run": partial(command, run),
    "serve": lambda: command(with_parameters(serve, _listed())),
}
