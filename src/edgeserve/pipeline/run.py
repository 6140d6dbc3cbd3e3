"""``edgeserve run edgeserve.toml``: the stages, declared; paths relative to the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeserve.errors import UsageError
from edgeserve.pipeline.convert import convert
from edgeserve.pipeline.measure import measure
from edgeserve.pipeline.options import (
    ConvertOptions,
    MeasureOptions,
    PackageOptions,
    ReportOptions,
    ValidateOptions,
)
from edgeserve.pipeline.publish import package, report
from edgeserve.pipeline.result import StageResult
from edgeserve.pipeline.stage_context import QUIET, Ui
from edgeserve.pipeline.validate import validate

__all__ = ["read_config", "run_config"]

_STAGES: dict[str, type[msgspec.Struct]] = {
    "convert": ConvertOptions,
    "validate": ValidateOptions,
    "measure": MeasureOptions,
    "package": PackageOptions,
    "report": ReportOptions,
}
#: Which settings are paths, taken from the file's folder.
_PATHS = frozenset({"out", "data", "golden", "junit", "against", "bundle", "report"})

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741


def _bad(path: Path, got: str) -> UsageError:
    return UsageError(
        "EDGE-USAGE-004",
        str(path),
        wanted=f"TOML with tables among {', '.join(_STAGES)}",
        got=got,
        hint="docs/guide/pipeline.md shows a whole edgeserve.toml",
    )


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """Read the tables of an ``edgeserve.toml``, paths made absolute and ``out`` handed on.

    Raises:
        UsageError: EDGE-USAGE-004, naming what is wrong.
    """
    try:
        tables = msgspec.toml.decode(path.read_bytes())
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
    return {n: _absolute(t, path.absolute().parent) for n, t in tables.items()}


def _absolute(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    def path(value: Any) -> Any:
        return os.path.normpath(folder / value) if isinstance(value, str) and value else value

    return {key: path(value) if key in _PATHS else value for key, value in table.items()}


def _options(tables: dict[str, dict[str, Any]], stage: str, type_: type[O], path: Path) -> O | None:
    if stage not in tables:
        return None
    try:
        return msgspec.convert(tables[stage], type_)
    except msgspec.ValidationError as error:
        raise _bad(path, f"[{stage}]: {error}") from error


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
    return StageResult(
        out=outcome.out,
        manifest=outcome.manifest,
        cells=outcome.cells,
        reports=outcome.reports,
        required=outcome.required,
        made=made,
    )
