"""From an exported program to ``model.tflite``, through ``litert_torch``.

A file has fixed sizes, and one signature for each where there are several (buckets): those share
their weights. It bears the signature's names and nothing of the machine it was made on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.sizes import Sizes, plan_sizes
from edgeserve.backends.tflite.decompositions import take_apart_unknown
from edgeserve.backends.tflite.edges import check_edges, edges
from edgeserve.backends.tflite.labels import mark, path_of
from edgeserve.backends.tflite.names import SINGLE, rename
from edgeserve.backends.tflite.refusals import Blame
from edgeserve.backends.tflite.schema import MODEL, read_bytes, write_model
from edgeserve.backends.tflite.trial import try_file
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.program import load_program, log_warnings
from edgeserve.backends.torch.rewrites import (
    apply,
    blank_blind_rows,
    choose_by_mask,
    copy_contiguous,
    drop_asserts,
    drop_expand,
    drop_idle,
    expand_to_cat,
    fold_batch_norm,
    fold_constants,
    plain_names,
    pool_adaptively,
    pool_by_slices,
    resize_by_lookup,
    resize_by_matrices,
    spell_alpha,
    spell_complex,
    spell_division,
    spell_divisor,
    spell_padding,
    split_groups,
    spread_transposed,
    unfold_by_convolution,
)
from edgeserve.backends.torch.rewrites.parts import functional, with_sizes
from edgeserve.files import describe, write_atomic
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import Signature

__all__ = ["export_tflite"]

#: What is rewritten whatever the sizes, and what once they are fixed.
_REWRITES = (
    drop_asserts,
    drop_idle,
    fold_batch_norm,
    plain_names,
    spell_alpha,
    spell_division,
    spell_divisor,
    choose_by_mask,
    copy_contiguous,
    blank_blind_rows,
)
_SIZED = (
    spell_complex,
    spread_transposed,
    split_groups,
    spell_padding,
    pool_adaptively,
    pool_by_slices,
    unfold_by_convolution,
    resize_by_lookup,
    resize_by_matrices,
    fold_constants,
    drop_expand,
    expand_to_cat,
)


def export_tflite(
    exported: Exported, root: Path, out: Path, route: str, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.tflite``.

    Raises:
        UnsupportedOp: EDGE-OP-010 no translation for an op, -011 an op that cannot be used in this
            way, -012 an op that the engine does not run.
        ConvertError: EDGE-CONVERT-040 the converter failed, -041 the file is not what was asked
            for, -042 the program does not hold for one sample or a length, -043 it is too large.
    """
    program = load_program(reference_artifact(exported), root)
    blame = Blame(mark(program), Path(exported.source.folder))
    examples = _examples(exported, root)
    sizes, notes = plan_sizes(exported, {name: x.shape for name, x in examples.items()})
    for note in notes:
        print(note, flush=True)
    try:
        with log_warnings(), _without_gc():
            made = _convert(program, exported.signature, sizes)
    except Exception as error:  # the converter raises many kinds
        raise blame.refusal(error) from error
    model = read_bytes(made.data)
    _rename(model, exported.signature, sizes, made.outputs)
    buckets = check_edges(edges(model), exported.signature, sizes)
    data = write_model(model)
    try_file(data, model, buckets[0], examples, blame)
    write_atomic(out / MODEL, data)
    return Artifact(
        format="tflite",
        precision="fp32",
        entry=MODEL,
        files=(describe(out, MODEL),),
        io=buckets[-1],
        buckets=buckets if len(buckets) > 1 else (),
        provenance=Provenance(route=route, rewrites=made.rewrites, tools=tools),
    )


def _examples(exported: Exported, root: Path) -> dict[str, np.ndarray]:
    with np.load(root / exported.examples.path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


@dataclass(frozen=True)
class _Made:
    """What the converter made.

    Attributes:
        data: Its file.
        outputs: ``module/node`` of the source op that gives each output.
        rewrites: Names of the rewrites that were applied before.
    """

    data: bytes
    outputs: tuple[str, ...]
    rewrites: tuple[str, ...]


def _rename(
    model: Any, signature: Signature, sizes: Sequence[Sizes], sources: Sequence[str]
) -> None:
    inputs = [spec.name for spec in signature.inputs]
    outputs = [spec.name for spec in signature.outputs]
    rename(model, sizes[-1].name or SINGLE, inputs, list(zip(outputs, sources, strict=True)))


def _convert(program: ExportedProgram, signature: Signature, sizes: Sequence[Sizes]) -> _Made:
    import litert_torch

    take_apart_unknown()
    module: Any = program.module(check_guards=False)
    rewrites = dict.fromkeys(apply(module, _REWRITES))
    converter = litert_torch.Converter()
    for each in sizes:
        inputs = tuple(
            torch.zeros(each.of(spec.shape), dtype=getattr(torch, spec.dtype))
            for spec in signature.inputs
        )
        part, more = _sized(module, inputs)
        rewrites |= dict.fromkeys(more)
        converter.signature(each.name or SINGLE, part, inputs)
    outputs = tuple(path_of(node) for node in module.graph.output_node().args[0])
    with torch.no_grad():
        return _Made(converter.convert().model_content(), outputs, tuple(rewrites))


def _sized(
    module: fx.GraphModule, inputs: tuple[torch.Tensor, ...]
) -> tuple[fx.GraphModule, tuple[str, ...]]:
    """The module with the rewrites that need fixed sizes, and their names.

    The converter exports it again itself, which fixes the sizes.
    """
    plain = functional(module, inputs)
    sized = with_sizes(plain, inputs)
    rewrites = apply(sized, _SIZED if plain is module else (*_REWRITES, *_SIZED))
    for part in sized.modules():
        part.training = False  # an exported module has no eval(); its trace is fixed anyway
    return sized, rewrites


@contextmanager
def _without_gc() -> Iterator[None]:
    """Hold back the garbage collector: tracing makes many objects and few cycles among them.

    That takes an eighth off the time and adds a hundredth to the memory.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
