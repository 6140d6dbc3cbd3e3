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

from edgeserve.backends.coreml.edges import check_edges, input_types, output_types
from edgeserve.backends.coreml.flexible import opened, try_open
from edgeserve.backends.coreml.image import check_picture
from edgeserve.backends.coreml.library import checked_at_the_end, coremltools
from edgeserve.backends.coreml.lowerings import register_lowerings
from edgeserve.backends.coreml.lowerings.node_names import part_names
from edgeserve.backends.coreml.merge import merge, read_package
from edgeserve.backends.coreml.metadata import describe_package, sources_of
from edgeserve.backends.coreml.order import TARGETS, WHOLE, Order
from edgeserve.backends.coreml.package import ENTRY, write_package
from edgeserve.backends.coreml.program import Fixed, SourceProgram, load_source
from edgeserve.backends.coreml.refusals import refusal, unfit
from edgeserve.backends.coreml.spec import signatures
from edgeserve.backends.sizes import Sizes, plan_sizes
from edgeserve.backends.torch.program import log_warnings
from edgeserve.errors import EdgeError
from edgeserve.types.artifact import Artifact, Provenance, Recipe
from edgeserve.types.source import Exported

__all__ = ["export_coreml"]

_NEWER = re.compile(r"target\.(iOS\d+)")


def export_coreml(order: Order, root: Path, out: Path, tools: dict[str, str]) -> Artifact:
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
            return _made(order, source, ranged, examples, out, tools)
        except EdgeError as error:
            print(f"sizes {dict(ranged[0].ranges)} cannot stay open: {error}", flush=True)
            shutil.rmtree(out / ENTRY, ignore_errors=True)
    sizes, notes = plan_sizes(order.exported, shapes)
    for note in notes:
        print(note, flush=True)
    if order.picture is not None:
        check_picture(order.exported, order.picture, sizes[-1])
    return _made(order, source, sizes, examples, out, tools)


def _made(
    order: Order,
    source: SourceProgram,
    sizes: Sequence[Sizes],
    examples: Mapping[str, np.ndarray],
    out: Path,
    tools: dict[str, str],
) -> Artifact:
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as stage:
        parts = _convert_all(order, source, sizes, Path(stage))
        spec, weights = _joined(parts, Path(stage))
        sources = {part.name or "main": part.sources for part in parts}
        describe_package(spec, order.exported, order.options, sources, source.modules)
        files = write_package(spec, weights, out)
    found = signatures(spec)
    check_edges(found, order, sizes)
    if sizes[0].ranges:
        found = (opened(found[0], order.exported.signature, sizes[0]),)
        arrays = [examples[spec.name] for spec in order.exported.signature.inputs]
        program, signature = source.program, order.exported.signature
        try_open(out / ENTRY, program, signature, sizes[0], arrays, order.precision)
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
    order: Order, version: int, rewrites: tuple[str, ...], tools: dict[str, str]
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


def _joined(parts: Sequence[_Part], stage: Path) -> tuple[Any, Path]:
    if len(parts) == 1:
        return read_package(parts[0].folder)
    return merge({str(part.name): part.folder for part in parts}, stage)


def _convert_all(
    order: Order, source: SourceProgram, sizes: Sequence[Sizes], stage: Path
) -> list[_Part]:
    target = order.target(len(sizes))
    parts = []
    for each, fixed in zip(sizes, _fix(source, sizes, order), strict=True):
        folder = stage / f"{each.name or 'main'}.mlpackage"
        part_names(fixed.program)
        try:
            made = _call(order, fixed.program, each, folder, target)
        except Exception as error:  # the converter raises many kinds
            user = Path(order.exported.source.folder)
            raise refusal(error, fixed.program, source, user) from error
        parts.append(_Part(each.name, folder, sources_of(made, source), fixed.rewrites))
    return parts


def _fix(source: SourceProgram, sizes: Sequence[Sizes], order: Order) -> Iterator[Fixed]:
    try:
        yield from source.fixed(sizes, whole=order.route == WHOLE)
    except Exception as error:  # torch raises many kinds
        shown = [dict(each.dims) for each in sizes]
        raise unfit(error, source, shown, Path(order.exported.source.folder)) from error


def _call(order: Order, program: ExportedProgram, sizes: Sizes, folder: Path, target: str) -> Any:
    """Call the converter, again where it says that an op needs a newer system; a PyMIL program."""
    ct = coremltools()
    precision = ct.precision.FLOAT16 if order.precision == "fp16" else ct.precision.FLOAT32
    try:
        with log_warnings(), checked_at_the_end():
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
