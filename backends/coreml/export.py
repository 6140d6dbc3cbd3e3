"""From an exported program to ``model.mlpackage``, through ``coremltools.convert``.

A package takes ranges of sizes where it could be shown to answer as its source there; a text's
lengths become one function each (buckets), which share their weights; else sizes are fixed. It
bears the signature's names and nothing of the machine it was made on.
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
from edgeserve.backends.coreml.metadata import describe_package, sources_of
from edgeserve.backends.coreml.package import ENTRY, merge_functions, read_package, write_package
from edgeserve.backends.coreml.passes import register_lowerings
from edgeserve.backends.coreml.passes.argument_checks import rename_ambiguous_nodes
from edgeserve.backends.coreml.program import FixedProgram, SourceProgram, load_source
from edgeserve.backends.coreml.spec import signatures
from edgeserve.backends.sizes import Sizes, plan_sizes
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact, Provenance, Recipe
from edgeserve.types.source import Exported

__all__ = ["export_coreml"]

_NEWER = re.compile(r"target\.(iOS\d+)")


def export_coreml(
    order: CoremlExportRequest, root: Path, out: Path, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.mlpackage``.

    Raises:
        UnsupportedOp: EDGE-OP-020 no translation for an op, -021 an op that cannot be used in this
            way.
        ConvertError: EDGE-CONVERT-050 an input that cannot be a picture, -051 the converter failed,
            -052 the package is not what was asked for, -053 the program does not hold for one
            sample or one of the lengths, -054 the asked system is too old.
    """
    source = load_source(order.exported, root)
    examples = _examples(order.exported, root)
    shapes = {name: array.shape for name, array in examples.items()}
    register_lowerings()
    ranged, _ = plan_sizes(order.exported, shapes, ranged=order.picture is None)
    if ranged[0].ranges:
        try:
            return _convert_and_write(order, source, ranged, examples, out, tools)
        except EdgeError as error:
            print(f"sizes {dict(ranged[0].ranges)} cannot stay open: {error}", flush=True)
            shutil.rmtree(out / ENTRY, ignore_errors=True)
    sizes, notes = plan_sizes(order.exported, shapes)
    for note in notes:
        print(note, flush=True)
    if order.picture is not None:
        check_image_input(order.exported, order.picture, sizes[-1])
    return _convert_and_write(order, source, sizes, examples, out, tools)


def _convert_and_write(
    order: CoremlExportRequest,
    source: SourceProgram,
    sizes: Sequence[Sizes],
    examples: Mapping[str, np.ndarray],
    out: Path,
    tools: dict[str, str],
) -> Artifact:
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        parts = _convert_all(order, source, sizes, Path(stage))
        spec, weights = _merge_parts(parts, Path(stage))
        sources = {part.name or "main": part.sources for part in parts}
        describe_package(spec, order.exported, order.options, sources, source.modules)
        files = write_package(spec, weights, out)
    found = signatures(spec)
    check_converted_io(found, order, sizes)
    if sizes[0].ranges:
        found = (dynamic_io(found[0], order.exported.signature, sizes[0]),)
        arrays = [examples[spec.name] for spec in order.exported.signature.inputs]
        program, signature = source.program, order.exported.signature
        check_dynamic_ranges(out / ENTRY, program, signature, sizes[0], arrays, order.precision)
    return Artifact(
        format="coreml",
        precision=order.precision,
        entry=ENTRY,
        files=files,
        io=found[-1],
        buckets=found if len(found) > 1 else (),
        provenance=_provenance(order, spec.specificationVersion, parts[-1].rewrites, tools),
    )


def _provenance(
    order: CoremlExportRequest, version: int, rewrites: tuple[str, ...], tools: dict[str, str]
) -> Provenance:
    target = coremltools().target(version).name
    recipe = Recipe(precision=order.precision, options={**order.options, "target": target})
    return Provenance(route=order.route, tools=tools, recipe=recipe, rewrites=rewrites)


def _examples(exported: Exported, root: Path) -> dict[str, np.ndarray]:
    with np.load(root / exported.examples.path, allow_pickle=False) as examples:
        return {name: examples[name] for name in examples.files}


@dataclass(frozen=True)
class _Part:
    """One converted function: its name in the file, its package, what each source op became."""

    name: str | None
    folder: Path
    sources: dict[str, list[str]]
    rewrites: tuple[str, ...]


def _merge_parts(parts: Sequence[_Part], stage: Path) -> tuple[Any, Path]:
    if len(parts) == 1:
        return read_package(parts[0].folder)
    return merge_functions({str(part.name): part.folder for part in parts}, stage)


def _convert_all(
    order: CoremlExportRequest, source: SourceProgram, sizes: Sequence[Sizes], stage: Path
) -> list[_Part]:
    target = order.target(len(sizes))
    parts = []
    for each, fixed in zip(sizes, _fixed_programs(source, sizes, order), strict=True):
        folder = stage / f"{each.name or 'main'}.mlpackage"
        rename_ambiguous_nodes(fixed.program)
        try:
            made = _call(order, fixed.program, each, folder, target)
        except Exception as error:  # the converter raises many kinds
            user = Path(order.exported.source.folder)
            raise convert_error(error, fixed.program, source, user) from error
        parts.append(_Part(each.name, folder, sources_of(made, source), fixed.rewrites))
    return parts


def _fixed_programs(
    source: SourceProgram, sizes: Sequence[Sizes], order: CoremlExportRequest
) -> Iterator[FixedProgram]:
    try:
        yield from source.fixed(sizes, whole=order.route == WHOLE)
    except Exception as error:  # torch raises many kinds
        shown = [dict(each.dims) for each in sizes]
        raise fixed_size_error(error, source, shown, Path(order.exported.source.folder)) from error


def _call(
    order: CoremlExportRequest, program: ExportedProgram, sizes: Sizes, folder: Path, target: str
) -> Any:
    """Call the converter, again where it says that an op needs a newer system; a PyMIL program."""
    ct = coremltools()
    precision = ct.precision.FLOAT16 if order.precision == "fp16" else ct.precision.FLOAT32
    try:
        with log_warnings(), validate_once(), remove_weight_folders():
            model = ct.convert(
                program,
                source="pytorch",
                convert_to="mlprogram",
                skip_model_load=True,
                inputs=input_types(order, sizes),
                outputs=output_types(order),
                minimum_deployment_target=ct.target[target],
                compute_precision=precision,
                package_dir=str(folder),
            )
    except ValueError as error:
        newer = _NEWER.search(str(error))
        if newer is None or newer[1] not in TARGETS[TARGETS.index(target) + 1 :]:
            raise
        return _call(order, program, sizes, folder, newer[1])
    return model._mil_program  # its public reader copies it, and fails on long programs
