"""Commands that make things: convert, validate, measure, package, report, run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeserve.cli.app import Json, command, print_json, show, terminal_ui
from edgeserve.cli.options import command_of
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


COMMANDS = {
    "convert": partial(command_of, ConvertOptions, convert),
    "validate": partial(command_of, ValidateOptions, validate),
    "measure": partial(command_of, MeasureOptions, measure),
    "package": partial(command_of, PackageOptions, package),
    "report": partial(command_of, ReportOptions, report),
    "run": partial(command, run),
}
