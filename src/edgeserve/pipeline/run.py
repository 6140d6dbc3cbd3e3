"""``edgeserve run edgeserve.toml``: the stages, declared; paths relative to the file."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeserve.errors import UsageError
from edgeserve.options import definitions, read_options
from edgeserve.pipeline.convert import convert
from edgeserve.pipeline.measure import measure
from edgeserve.pipeline.publish import package, report
from edgeserve.pipeline.result import StageResult
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.pipeline.validate import validate
from edgeserve.types.options import (
    ConvertOptions,
    MeasureOptions,
    PackageOptions,
    ReportOptions,
    ValidateOptions,
)

#: Tables of the file, in the order in which the stages run.
_STAGES: dict[str, type] = {
    "convert": ConvertOptions,
    "validate": ValidateOptions,
    "measure": MeasureOptions,
    "report": ReportOptions,
    "package": PackageOptions,
}

O = TypeVar("O")  # noqa: E741


def _bad(path: Path, got: str) -> UsageError:
    wanted = f"TOML with tables among {', '.join(_STAGES)}"
    hint = "docs/guide/pipeline.md shows a whole edgeserve.toml"
    return UsageError("EDGE-USAGE-004", str(path), wanted=wanted, got=got, hint=hint)


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """Read the tables of an ``edgeserve.toml``, paths made absolute and ``out`` handed on.

    Raises:
        UsageError: EDGE-USAGE-004, naming what is wrong.
    """
    try:
        tables: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise _bad(path, error.strerror or "no such file") from error
    except msgspec.DecodeError as error:
        raise _bad(path, str(error)) from error
    if unknown := set(tables) - set(_STAGES):
        raise _bad(path, f"the unknown table [{sorted(unknown)[0]}]")
    if "convert" not in tables or "out" not in tables["convert"]:
        raise _bad(path, "no [convert] table with `source` and `out`")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _bad(path, f"{name} is no table")
        table.setdefault("out", tables["convert"]["out"])
        for option, (_, definition) in definitions(_STAGES[name]).items():
            if definition.path and isinstance(value := table.get(option), str) and value:
                table[option] = os.path.normpath(path.absolute().parent / value)
    return tables


def _options(tables: dict[str, dict[str, Any]], stage: str, kind: type[O], path: Path) -> O | None:
    if stage not in tables:
        return None
    try:
        return read_options(kind, tables[stage])
    except ValueError as error:
        raise _bad(path, f"[{stage}]: {error}") from error


def config_schema() -> dict[str, Any]:
    """The JSON Schema of ``edgeserve.toml``, for editors; made of the options themselves."""
    roots, parts = msgspec.json.schema_components(_STAGES.values(), ref_template="#/$defs/{name}")
    for name, kind in _STAGES.items():
        part = parts[kind.__name__]
        part["title"], part["additionalProperties"] = f"edgeserve {name}", False
        part["description"] = str(kind.__doc__).partition("\n")[0]
        if name != "convert":  # handed on
            part["required"].remove("out")
        for option, (_, definition) in definitions(kind).items():
            field = part["properties"][option]
            field["description"] = definition.help
            if definition.choices:
                field["examples"] = list(definition.choices())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "edgeserve.toml",
        "type": "object",
        "properties": dict(zip(_STAGES, roots, strict=True)),
        "required": ["convert"],
        "additionalProperties": False,
        "$defs": dict(sorted(parts.items())),
    }


def run_config(path: Path, ui: Ui = QUIET) -> StageResult:
    """Run the declared stages in order: convert, validate, measure, report, package.

    The report is rendered even when a check failed (that is when it is wanted most). What passed is
    packaged even when another artifact was refused, which the exit code still says; with
    ``all_or_nothing``, or below a ``require``d verdict, nothing is.

    Raises:
        UsageError: EDGE-USAGE-004, before anything runs.
        EdgeError: whatever stopped a stage.
    """
    tables = read_config(path)
    to_convert = _options(tables, "convert", ConvertOptions, path)
    to_validate = _options(tables, "validate", ValidateOptions, path)
    to_measure = _options(tables, "measure", MeasureOptions, path)
    to_package = _options(tables, "package", PackageOptions, path)
    to_report = _options(tables, "report", ReportOptions, path)
    assert to_convert is not None  # read_config insists on it
    outcome = convert(to_convert, ui)
    if to_validate and outcome.manifest:
        outcome = validate(to_validate, ui)
    if to_measure and outcome.manifest and outcome.manifest.artifacts:
        measure(to_measure, ui)
    made: dict[str, str] = {}
    if to_report:
        made["report"] = report(to_report, ui).path
    kept = outcome.manifest.artifacts if outcome.manifest else ()
    if to_package and kept and not outcome.below_required:
        with ui.stage("package"):
            made["bundle"] = package(to_package).path
    return dataclasses.replace(outcome, plan=(), changes=(), made=made, repros={})
