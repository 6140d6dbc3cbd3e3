"""From an exported program to ``model.tflite``, through ``litert_torch``, and a first run.

A file has fixed sizes, with one signature for each of several sizes (buckets), which share their
weights. It has the signature's names and nothing specific to the machine. Some converted files
contain an op that the engine does not support, so a finished file runs once (`smoke_run`).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.sizes import Sizes, plan_sizes
from edgeserve.backends.tflite.convert_errors import ErrorTranslator
from edgeserve.backends.tflite.inspect import (
    check_converted_io,
    definition_of,
    fit_to_spec,
    read_signatures,
)
from edgeserve.backends.tflite.kernel_limits import check_kernels
from edgeserve.backends.tflite.lowerings import correct_layout_rules, register_decompositions
from edgeserve.backends.tflite.schema import op_type, read_bytes, write_artifact, write_model
from edgeserve.backends.tflite.tensor_names import SINGLE, path_of, rename, source_of, tag_sources
from edgeserve.backends.torch import load_examples, reference_artifact
from edgeserve.backends.torch.passes import (
    apply_passes,
    canonicalize,
    fold,
    functionalize,
    lower_arithmetic,
    lower_convolution,
    lower_data_movement,
    lower_division,
    lower_expand,
    lower_narrow_dtypes,
    lower_pooling,
    lower_resize,
    promote_dtypes,
)
from edgeserve.backends.torch.passes.add_batch_axis import add_batch_axis
from edgeserve.backends.torch.passes.add_scalar_axis import add_scalar_axis
from edgeserve.backends.torch.passes.fx_utils import functional, with_sizes
from edgeserve.backends.torch.passes.lower_complex import lower_complex
from edgeserve.backends.torch.passes.merge_axes import FOUR_AXES, has_many_axes, merge_axes_to_four
from edgeserve.backends.torch.passes.zero_fully_masked_rows import zero_fully_masked_rows
from edgeserve.backends.torch.program.io import load_program, log_warnings
from edgeserve.types.artifact import Artifact, Provenance
from edgeserve.types.source import Exported
from edgeserve.types.tensors import IO, Signature

_OP = re.compile(r"builtin opcode '(\w+)'|Node number \d+ \((\w+)\)")


def smoke_run(
    data: bytes, model: Any, io: IO, examples: Mapping[str, np.ndarray], translator: ErrorTranslator
) -> None:
    """Run one signature on the source's example inputs.

    Raises:
        UnsupportedOp: EDGE-OP-012.
    """
    from ai_edge_litert.interpreter import Interpreter

    feed = {spec.name: fit_to_spec(examples[spec.name], spec) for spec in io.inputs}
    try:
        engine = Interpreter(model_content=data, num_threads=1)
        engine.get_signature_runner(io.signature or SINGLE)(**feed)
    except Exception as error:  # the engine raises ValueError and RuntimeError
        match = _OP.search(str(error))
        type = (match[1] or match[2]) if match else "of the model"
        raise translator.unrunnable(type, _first_source(model, io, type), error) from error


def _first_source(model: Any, io: IO, type: str) -> str | None:
    """The source op of the first op of that type."""
    graph = model.subgraphs[definition_of(model, io.signature).subgraphIndex]
    for op in graph.operators:
        if op_type(model, op) == type:
            source = source_of(type, graph.tensors[op.outputs[0]].name.decode())
            return source[1] if source else None
    return None


#: Passes for any sizes, and passes that need fixed sizes.
_REWRITES = (
    canonicalize.remove_asserts,
    fold.fold_numbers,
    canonicalize.remove_noops,
    fold.fold_batch_norm,
    canonicalize.canonicalize_ops,
    add_scalar_axis,
    lower_arithmetic.lower_alpha,
    promote_dtypes.promote_operands,
    lower_narrow_dtypes.lower_narrow_dtypes,
    lower_arithmetic.lower_integer_powers,
    lower_division.lower_division,
    lower_pooling.lower_divisor,
    lower_pooling.drop_ceil_mode,
    functionalize.lower_masked_write,
    canonicalize.copy_contiguous,
    zero_fully_masked_rows,
)
_SIZED = (
    lower_complex,
    add_batch_axis,
    lower_convolution.lower_conv_transpose3d,
    lower_convolution.split_groups,
    lower_convolution.lower_padding,
    lower_pooling.lower_adaptive_pool,
    lower_pooling.pool_by_slices,
    lower_data_movement.unfold_by_convolution,
    lower_resize.resize_by_lookup,
    lower_resize.resize_by_matrices,
    fold.fold_constants,
    lower_expand.remove_expand,
)


def export_tflite(
    exported: Exported, root: Path, out: Path, route: str, tools: dict[str, str]
) -> Artifact:
    """Convert ``root/exported.program`` into ``out/model.tflite``.

    Raises:
        UnsupportedOp: EDGE-OP-010 no translation for an op, -011 an op that cannot be used in this
            way, -012 an op that the engine does not run.
        ConvertError: EDGE-CONVERT-040 the converter failed, -041 the file does not match
            the request, -042 the program is not valid for one sample or a length, -043 it is too
            large.
    """
    program = load_program(reference_artifact(exported), root)
    translator = ErrorTranslator(tag_sources(program), Path(exported.source.folder))
    examples = load_examples(exported, root)
    sizes, notes = plan_sizes(exported, {name: x.shape for name, x in examples.items()})
    for note in notes:
        print(note, flush=True)
    try:
        with log_warnings(), _without_gc():
            converted = _convert(program, exported.signature, sizes)
    except Exception as error:  # the converter raises many kinds
        raise translator.convert_error(error) from error
    model = read_bytes(converted.data)
    inputs = [spec.name for spec in exported.signature.inputs]
    outputs = [spec.name for spec in exported.signature.outputs]
    sources = list(zip(outputs, converted.outputs, strict=True))
    rename(model, sizes[-1].name or SINGLE, inputs, sources)
    buckets = check_converted_io(read_signatures(model), exported.signature, sizes)
    check_kernels(model, translator)
    data = write_model(model)
    smoke_run(data, model, buckets[0], examples, translator)
    provenance = Provenance(route=route, rewrites=converted.rewrites, tools=tools)
    return write_artifact(data, out, buckets, provenance)


@dataclass(frozen=True)
class _Made:
    """The converter's result.

    Attributes:
        data: The file.
        outputs: ``module/node`` of the source op of each output.
        rewrites: Names of the passes applied before.
    """

    data: bytes
    outputs: tuple[str, ...]
    rewrites: tuple[str, ...]


def _convert(program: ExportedProgram, signature: Signature, sizes: Sequence[Sizes]) -> _Made:
    import litert_torch

    register_decompositions()
    correct_layout_rules()
    module: Any = program.module(check_guards=False)
    rewrites = dict.fromkeys(apply_passes(module, _REWRITES))
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
    """The module after the passes that need fixed sizes, and their names.

    The converter exports it again itself, which fixes the sizes.
    """
    plain = functional(module, inputs)
    sized = with_sizes(plain, inputs)
    rewrites = apply_passes(sized, _SIZED if plain is module else (*_REWRITES, *_SIZED))
    if has_many_axes(sized, FOUR_AXES):
        sized = with_sizes(sized, inputs)  # of what the passes have put in as well
    rewrites += apply_passes(sized, (merge_axes_to_four, lower_expand.expand_to_cat))
    for part in sized.modules():
        part.training = False  # an exported module has no eval(); its trace is fixed anyway
    return sized, rewrites


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector: tracing creates many objects but few cycles.

    That saves an eighth of the time and costs a hundredth of the memory.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
