"""The public Python API: the stages of the command line, on objects of this process.

    from edgeserve import api

    ws = api.convert(model, example, out="out", to=["onnx", "tflite"], data="photos",
                     reference=predict, task="image-classification", labels=LABELS)
    print(ws.table())                     # a notebook shows `ws` as the same table
    ws.measure()
    ws.report("report.html")
    ws.package("model.edge")

A workspace made here and one made by ``edgeserve convert`` are the same: its lock, caches,
validation and manifest. Options are those of the commands, by the names that ``edgeserve.toml``
uses. Paths are relative to the working directory. Progress is one line a stage on standard error.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgeserve.bundle import workspace as folder
from edgeserve.convert.in_memory import read_given
from edgeserve.convert.options import OPTION_KEYS
from edgeserve.errors import CheckFailed, UsageError
from edgeserve.options import definitions, read_options
from edgeserve.pipeline import convert as stage_convert
from edgeserve.pipeline import measure as stage_measure
from edgeserve.pipeline import publish as stage_publish
from edgeserve.pipeline import validate as stage_validate
from edgeserve.pipeline.judge import stored_report
from edgeserve.pipeline.result import ResultTable, result_table
from edgeserve.pipeline.stage_context import QUIET, PlainProgress, Ui
from edgeserve.types.options import (
    ConvertOptions,
    MeasureOptions,
    PackageOptions,
    ReportOptions,
    ValidateOptions,
)
from edgeserve.types.reports import Report
from edgeserve.validate.reference.caller_function import CallerFunction

if TYPE_CHECKING:
    import torch

    from edgeserve.package import Packaged
    from edgeserve.pipeline.measure import MeasureResult
    from edgeserve.pipeline.result import StageResult
    from edgeserve.report import Rendered
    from edgeserve.types.manifest import Manifest

__all__ = ["Workspace", "convert", "open_workspace"]

F = TypeVar("F", bound=Callable[..., Any])
O = TypeVar("O")  # noqa: E741

_Path = str | os.PathLike[str]
_Reference = str | Callable[[Any], object]

#: Options of a factory that are none of the command.
_OF_FACTORIES = tuple(key for key in OPTION_KEYS if key not in definitions(ConvertOptions))


def _takes(kind: type, further: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Show the options of ``kind`` in a function's signature, for `help` and completion."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        options = {
            name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in (
                *((f.name, f.default) for f in kind.__dataclass_fields__.values()),  # type: ignore[attr-defined]
                *((name, None) for name in further),
            )
        }
        shown = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        named = {p.name for p in shown} | {"source", "out", "bundle"}
        shown += [p for name, p in options.items() if name not in named]
        function.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return function

    return decorate


@_takes(ConvertOptions, _OF_FACTORIES)
def convert(
    source: str | os.PathLike[str] | Workspace | torch.nn.Module | Callable[[], object],
    example: object = None,
    *,
    out: _Path,
    reference: _Reference | None = None,
    progress: bool = True,
    **options: Any,
) -> Workspace:
    """Convert a model and validate each artifact, as ``edgeserve convert`` does.

    Args:
        source: A SOURCE as text (``"my_module:build"``, a path, a workspace); or an object of
            this process: a module, or a function that returns what a factory returns. A module
            is copied, exported in this process and stays as it is; workers read the export.
        example: Example inputs of a module: a tensor, or a tuple or dict of them.
        out: The workspace.
        reference: Your server: an import path, an address, or a function of this process that
            takes a raw input. A function is called in this thread, one call at a time, and asked
            anew each time that it is given.
        progress: Print a line as each stage ends.
        options: The options of ``edgeserve convert``; with a module or function also what a
            factory's third value may hold (``dynamic_shapes``, ``labels``, ``processing``, ...).

    Returns:
        The workspace; `Workspace.ok` tells whether every artifact passed its checks.

    Raises:
        UsageError: EDGE-USAGE-013 an option that does not exist or is of another type, and what
            the command refuses.
        ConvertError: EDGE-CONVERT-085, an object that is no source; or the export failed.
        EdgeError: whatever stops the command.
    """
    of_factory = {name: options.pop(name) for name in _OF_FACTORIES if name in options}
    given = None
    if isinstance(source, Workspace):
        source = source.path
    if not isinstance(source, str | os.PathLike):
        given = read_given(source, example, of_factory)
        source = given.source.location
        reference = given.reference if reference is None else reference
    elif example is not None or of_factory:
        named = ["example"] * (example is not None) + list(of_factory)
        raise _bad_option("convert", f"{named[0]!r} beside {source!r}, which names its own")
    caller = _caller(reference)
    values = {"source": source, "out": out, "reference": caller.name if caller else reference}
    read = _read("convert", ConvertOptions, options | values)
    result = stage_convert.convert(read, _ui(progress), given, caller)
    return Workspace(out, progress=progress, result=result, caller=caller)


def open_workspace(out: _Path, *, progress: bool = True) -> Workspace:
    """Open a workspace that `convert` or ``edgeserve convert`` made.

    Raises:
        BundleError: EDGE-BUNDLE-051, there is none.
    """
    opened = Workspace(out, progress=progress)
    _ = opened.manifest
    return opened


class Workspace:
    """A workspace and the stages that work on it. Made by `convert` and `open_workspace`.

    Attributes:
        path: Its folder.
        result: What the last `convert` or `validate` of this object gave; None: none ran yet.
    """

    def __init__(
        self,
        out: _Path,
        *,
        progress: bool = True,
        result: StageResult | None = None,
        caller: CallerFunction | None = None,
    ) -> None:
        self.path = Path(out)
        self.result = result
        self._progress, self._caller = progress, caller

    @property
    def manifest(self) -> Manifest:
        """The manifest as it lies on the disk now."""
        return folder.Workspace(self.path).manifest

    @property
    def reports(self) -> dict[str, Report]:
        """The report of the validation of each artifact, by ``{format}-{precision}``."""
        found = ((each.name, stored_report(self.path, each)) for each in self.manifest.artifacts)
        return {name: report for name, report in found if report is not None}

    @property
    def ok(self) -> bool:
        """Whether the command would exit 0: nothing refused, below ``require`` or worse."""
        return not (self.result.exit_code if self.result else self.manifest.refused)

    def raise_for_status(self) -> None:
        """Do nothing if `ok`.

        Raises:
            CheckFailed: with the code of the first artifact that was refused, else
                EDGE-CHECK-900 or -901.
        """
        refused = self.result.refused if self.result else self.manifest.refused
        for each in refused:
            name = f"{each.format}-{each.precision}"
            raise CheckFailed(each.code, name, got=each.message, hint=each.hint)
        if self.result and (error := self.result.error):
            raise CheckFailed(error.code, str(self.path), got=error.message, hint=error.hint)

    @_takes(ValidateOptions)
    def validate(self, *, reference: _Reference | None = None, **options: Any) -> Workspace:
        """Validate again with different data, reference or limits; see ``edgeserve validate``.

        Args:
            reference: As for `convert`; None: the stored answers, or for other inputs the
                reference of the last validation.
            options: The options of ``edgeserve validate``.

        Returns:
            This workspace.
        """
        given = _caller(reference)
        self._caller = given or self._caller
        values = {"out": self.path, "reference": given.name if given else reference}
        read = _read("validate", ValidateOptions, options | values)
        self.result = stage_validate.validate(read, _ui(self._progress), self._caller)
        return self

    @_takes(MeasureOptions)
    def measure(self, **options: Any) -> MeasureResult:
        """Measure time and memory of each artifact; see ``edgeserve measure``."""
        read = _read("measure", MeasureOptions, options | {"out": self.path})
        return stage_measure.measure(read, _ui(self._progress))

    def report(self, report: _Path | None = None) -> Rendered:
        """Write the HTML report; without a path to ``reports/report.html`` of the workspace."""
        target = self.path / "reports" / "report.html" if report is None else report
        read = _read("report", ReportOptions, {"out": self.path, "report": target})
        return stage_publish.report(read, _ui(self._progress))

    @_takes(PackageOptions)
    def package(self, bundle: _Path, **options: Any) -> Packaged:
        """Write the ``.edge`` package; see ``edgeserve package``."""
        values = {"out": self.path, "bundle": bundle}
        return stage_publish.package(_read("package", PackageOptions, options | values))

    def table(self) -> ResultTable:
        """All artifacts with verdict, size and agreement; times where they were measured."""
        manifest = self.manifest
        times = {
            f"{r.format}-{r.precision}": r.figures["p50_ms"]
            for r in manifest.reports
            if "p50_ms" in r.figures
        }
        return result_table(manifest.artifacts, manifest.refused, self.reports, times)

    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _ui(progress: bool) -> Ui:
    return PlainProgress() if progress else QUIET


def _caller(reference: _Reference | None) -> CallerFunction | None:
    """The reference, if it is a function of this process."""
    if reference is None or isinstance(reference, str):
        return None
    return CallerFunction(reference, Path.cwd())


def _read(command: str, kind: type[O], values: Mapping[str, Any]) -> O:
    try:
        return read_options(kind, values)
    except ValueError as error:
        raise _bad_option(command, str(error)) from error


def _bad_option(command: str, got: str) -> UsageError:
    wanted = f"the options of `edgeserve {command}`"
    hint = f"help(edgeserve.api) and `edgeserve {command} --help` list them"
    return UsageError("EDGE-USAGE-013", f"{command}()", wanted=wanted, got=got, hint=hint)
