"""From an exported program to ``model.mlpackage``, through ``coremltools.convert``.

A package has ranges of sizes if it matches its source at their ends; the lengths of a text become
one function each (buckets), which share their weights; otherwise sizes are fixed. It has the
signature's names and nothing specific to the machine.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.export import ExportedProgram

from edgeserve.backends.base import Tools
from edgeserve.backends.coreml.convert_errors import convert_error, fixed_size_error
from edgeserve.backends.coreml.coremltools_import import (
    coremltools,
    remove_weight_folders,
    validate_once,
)
from edgeserve.backends.coreml.dynamic_ranges import check_dynamic_ranges, dynamic_io
from edgeserve.backends.coreml.export_request import (
    TARGETS,
    WHOLE,
    CoremlExportRequest,
    check_converted_io,
    check_image_input,
    input_types,
    output_types,
)
from edgeserve.backends.coreml.float16 import float16_precision
from edgeserve.backends.coreml.metadata import describe_package, sources_of
from edgeserve.backends.coreml.package import ENTRY, merge_functions, read_package, write_package
from edgeserve.backends.coreml.passes import register_lowerings
from edgeserve.backends.coreml.passes.argument_checks import rename_ambiguous_nodes
from edgeserve.backends.coreml.program import FixedProgram, SourceProgram, load_source
from edgeserve.backends.coreml.spec import signatures
from edgeserve.backends.sizes import Sizes, plan_sizes
from edgeserve.backends.torch import load_examples
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact, Provenance, Recipe

_NEWER = re.compile(r"target\.(iOS\d+)")


def export_coreml(request: CoremlExportRequest, root: Path, out: Path, tools: Tools) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.mlpackage``.

    Raises:
        UnsupportedOp: EDGE-OP-020 no translation for an op, -021 an op that cannot be used in this
            way.
        ConvertError: EDGE-CONVERT-050 an input that cannot be an image, -051 the converter failed,
            -052 the package does not match the request, -053 the program is not valid for one
            sample or one of the lengths, -054 the requested system is too old.
    """
    source = load_source(request.exported, root)
    examples = load_examples(request.exported, root)
    shapes = {name: array.shape for name, array in examples.items()}
    register_lowerings()
    ranged, _ = plan_sizes(request.exported, shapes, ranged=request.picture is None)
    if ranged[0].ranges:
        try:
            return _convert_and_write(request, source, ranged, examples, out, tools)
        except EdgeError as error:
            print(f"sizes {dict(ranged[0].ranges)} cannot stay dynamic: {error}", flush=True)
            shutil.rmtree(out / ENTRY, ignore_errors=True)
    sizes, notes = plan_sizes(request.exported, shapes)
    for note in notes:
        print(note, flush=True)
    if request.picture is not None:
        check_image_input(request.exported, request.picture, sizes[-1])
    return _convert_and_write(request, source, sizes, examples, out, tools)


def _convert_and_write(
    request: CoremlExportRequest,
    source: SourceProgram,
    sizes: Sequence[Sizes],
    examples: Mapping[str, np.ndarray],
    out: Path,
    tools: Tools,
) -> Artifact:
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        parts = _convert_all(request, source, sizes, Path(stage))
        if len(parts) == 1:
            spec, weights = read_package(parts[0].folder)
        else:
            folders = {str(part.name): part.folder for part in parts}
            spec, weights = merge_functions(folders, Path(stage))
        sources = {part.name or "main": part.sources for part in parts}
        describe_package(spec, request.exported, request.options, sources, source.modules)
        files = write_package(spec, weights, out)
    ios = signatures(spec)
    check_converted_io(ios, request, sizes)
    if sizes[0].ranges:
        ios = (dynamic_io(ios[0], request.exported.signature, sizes[0]),)
        arrays = [examples[spec.name] for spec in request.exported.signature.inputs]
        program, signature = source.program, request.exported.signature
        check_dynamic_ranges(out / ENTRY, program, signature, sizes[0], arrays, request.precision)
    target = coremltools().target(spec.specificationVersion).name
    recipe = Recipe(precision=request.precision, options={**request.options, "target": target})
    provenance = Provenance(
        route=request.route, tools=tools, recipe=recipe, rewrites=parts[-1].rewrites
    )
    buckets = ios if len(ios) > 1 else ()
    return Artifact("coreml", request.precision, ENTRY, files, ios[-1], buckets, provenance)


@dataclass(frozen=True)
class _Part:
    """One converted function: its name in the file, its package, the values of each source op."""

    name: str | None
    folder: Path
    sources: dict[str, list[str]]
    rewrites: tuple[str, ...]


def _convert_all(
    request: CoremlExportRequest, source: SourceProgram, sizes: Sequence[Sizes], stage: Path
) -> list[_Part]:
    target = request.target(len(sizes))
    parts = []
    for each, fixed in zip(sizes, _fixed_programs(source, sizes, request), strict=True):
        folder = stage / f"{each.name or 'main'}.mlpackage"
        rename_ambiguous_nodes(fixed.program)
        try:
            converted = _call(request, fixed.program, each, folder, target)
        except Exception as error:  # the converter raises many kinds
            user = Path(request.exported.source.folder)
            raise convert_error(error, fixed.program, source, user) from error
        parts.append(_Part(each.name, folder, sources_of(converted, source), fixed.rewrites))
    return parts


def _fixed_programs(
    source: SourceProgram, sizes: Sequence[Sizes], request: CoremlExportRequest
) -> Iterator[FixedProgram]:
    try:
        yield from source.fixed(sizes, whole=request.route == WHOLE)
    except Exception as error:  # torch raises many kinds
        shown = [dict(each.dims) for each in sizes]
        raise fixed_size_error(
            error, source, shown, Path(request.exported.source.folder)
        ) from error


def _call(
    request: CoremlExportRequest, program: ExportedProgram, sizes: Sizes, folder: Path, target: str
) -> Any:
    """Run the converter, again if an op needs a newer system; returns a PyMIL program."""
    ct = coremltools()
    half = request.precision == "fp16"
    precision = float16_precision() if half else ct.precision.FLOAT32
    try:
        with log_warnings(), validate_once(), remove_weight_folders():
            model = ct.convert(
                program,
                source="pytorch",
                convert_to="mlprogram",
                skip_model_load=True,
                inputs=input_types(request, sizes),
                outputs=output_types(request),
                minimum_deployment_target=ct.target[target],
                compute_precision=precision,
                package_dir=str(folder),
            )
    except ValueError as error:
        newer = _NEWER.search(str(error))
        if newer is None or newer[1] not in TARGETS[TARGETS.index(target) + 1 :]:
            raise
        return _call(request, program, sizes, folder, newer[1])
    return model._mil_program  # its public reader copies it, and fails on long programs
