"""The exported program in a form for Core ML: fixed sizes, plain inputs and outputs, source ops.

The graph is changed on the unlifted module and exported again, so that torch itself recomputes
shapes and signature. Every node's stack trace is replaced by the name of its source op, which torch
and coremltools propagate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeserve.backends.coreml.passes.decompose import decompose
from edgeserve.backends.sizes import Sizes
from edgeserve.backends.torch import reference_artifact
from edgeserve.backends.torch.diagnose.unsupported_op import mark_nodes
from edgeserve.backends.torch.passes import (
    Pass,
    apply_passes,
    canonicalize,
    fold,
    functionalize,
    lower_arithmetic,
    lower_convolution,
    lower_data_movement,
    lower_division,
    lower_narrow_dtypes,
    lower_pooling,
    lower_resize,
    promote_dtypes,
)
from edgeserve.backends.torch.passes.add_batch_axis import add_batch_axis
from edgeserve.backends.torch.passes.add_scalar_axis import add_scalar_axis
from edgeserve.backends.torch.passes.fx_utils import functional, with_sizes
from edgeserve.backends.torch.passes.lower_complex import has_complex, lower_complex
from edgeserve.backends.torch.passes.merge_axes import has_many_axes, merge_axes
from edgeserve.backends.torch.passes.move_bools import move_bools
from edgeserve.backends.torch.passes.specialize import specialize
from edgeserve.backends.torch.passes.zero_fully_masked_rows import zero_fully_masked_rows
from edgeserve.backends.torch.program.inspect import module_path
from edgeserve.backends.torch.program.io import load_program, log_warnings
from edgeserve.types.source import Exported
from edgeserve.types.tensors import TensorSpec
from edgeserve.user_lines import one_line

#: The passes for any sizes.
_ANY_SIZES = (
    fold.fold_batch_norm,
    canonicalize.remove_asserts,
    fold.fold_numbers,
    canonicalize.remove_noops,
    functionalize.functionalize_buffers,
    functionalize.functionalize_inputs,
    functionalize.lower_masked_write,
    canonicalize.canonicalize_ops,
    canonicalize.list_all_axes,
    add_scalar_axis,
    move_bools,
    lower_arithmetic.lower_alpha,
    promote_dtypes.promote_operands,
    lower_narrow_dtypes.lower_casts,
    lower_narrow_dtypes.lower_narrow_dtypes,
    lower_narrow_dtypes.lower_bfloat16,
    lower_arithmetic.lower_integer_powers,
    lower_division.lower_division,
    lower_pooling.lower_divisor,
    lower_pooling.drop_ceil_mode,
    canonicalize.copy_contiguous,
    zero_fully_masked_rows,
    canonicalize.canonicalize_clip_bounds,
)

#: The passes that need fixed sizes.
_FIXED_SIZES = (
    lower_complex,
    add_batch_axis,
    lower_convolution.lower_output_padded_conv3d,
    lower_convolution.lower_output_padding,
    lower_pooling.lower_adaptive_pool,
    lower_pooling.pool_by_slices,
    lower_data_movement.unfold_by_convolution,
    lower_data_movement.roll_by_slices,
    lower_resize.resize_by_lookup,
    lower_resize.resize_by_matrices,
    fold.fold_constants,
    canonicalize.normalize_outputs,
)


def _passes(whole: bool) -> tuple[Pass, ...]:
    return (*_ANY_SIZES, canonicalize.canonicalize_relu6) if whole else _ANY_SIZES


@dataclass(frozen=True)
class FixedProgram:
    """A program for fixed sizes, and the passes that changed it."""

    program: ExportedProgram
    rewrites: tuple[str, ...]


@dataclass(frozen=True)
class SourceProgram:
    """The exported program, loaded.

    Attributes:
        program: As exported; each node's stack trace is its own name.
        inputs: What it takes.
        traces: The real stack traces, by source op.
        modules: The module that held each source op ("features.0"), where known.
    """

    program: ExportedProgram
    inputs: tuple[TensorSpec, ...]
    traces: dict[str, str]
    modules: dict[str, str | None]

    def fixed(self, sizes: Sequence[Sizes], whole: bool) -> Iterator[FixedProgram]:
        """The same program for each of these sizes alone, in core ATen.

        Several are traced once, with the differing sizes dynamic, and then specialized. Sizes with
        ranges stay dynamic.

        Args:
            sizes: The size of every dynamic dimension.
            whole: Keep operators whole that coremltools translates.

        Raises:
            Exception: of torch, where the program is not valid for these sizes.
        """
        if sizes[0].ranges:
            yield self._ranged(sizes[0], whole)
            return
        if len(sizes) > 1 and (common := self._open(sizes, whole)) is not None:
            for each in sizes:
                shapes = [each.of(spec.shape) for spec in self.inputs]
                made = specialize(common.program, shapes)
                yield _limit_rank(FixedProgram(made, common.rewrites), self._examples(each), whole)
            return
        for each in sizes:
            yield self._closed(each, whole)

    def _closed(self, sizes: Sizes, whole: bool) -> FixedProgram:
        """Traced for one choice of sizes."""
        examples = self._examples(sizes)
        with log_warnings():
            module: Any = self.program.module()
            rewrites = apply_passes(module, _passes(whole))
            plain = functional(module, examples)
            again = () if plain is module else _passes(whole)
            module = with_sizes(plain, examples)
            rewrites += apply_passes(module, (*again, *_FIXED_SIZES))
            program = decompose(torch.export.export(module, examples), whole)
            return _limit_rank(FixedProgram(program, rewrites), examples, whole)

    def _examples(self, sizes: Sizes) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.zeros(sizes.of(spec.shape), dtype=getattr(torch, spec.dtype))
            for spec in self.inputs
        )

    def _open(self, sizes: Sequence[Sizes], whole: bool) -> FixedProgram | None:
        """Traced with the differing sizes dynamic; None if torch cannot do that."""
        first, last = sizes[0].dims, sizes[-1].dims
        free = {name for name in first if first[name] != last[name]} | set(sizes[0].ranges)
        dynamic = tuple(
            {axis: torch.export.Dim.DYNAMIC for axis, dim in enumerate(spec.shape) if dim in free}
            for spec in self.inputs
        )
        examples = self._examples(sizes[len(sizes) // 2])
        with log_warnings():
            module: Any = self.program.module()
            rewrites = apply_passes(module, _passes(whole))
            if canonicalize.outputs_need_sizes(module) or has_complex(module):
                return None
            rewrites += apply_passes(module, (canonicalize.normalize_outputs,))
            try:
                program = torch.export.export(module, examples, dynamic_shapes=dynamic)
                return FixedProgram(decompose(program, whole), rewrites)
            except Exception as error:  # torch raises many kinds; one size at a time may do
                print(f"tracing the lengths one by one: {one_line(error)}", flush=True)
                return None

    def _ranged(self, sizes: Sizes, whole: bool) -> FixedProgram:
        """Dynamic in the dimensions with ranges.

        Raises:
            ValueError: that is impossible; the log has the reason.
        """
        found = self._open((sizes,), whole)
        if found is None or has_many_axes(found.program.graph_module):
            raise ValueError("its operators need fixed sizes")
        return found

    def target(self, source: str) -> str:
        """The operator of a source op, by torch's name."""
        return next(str(n.target) for n in self.program.graph.nodes if n.name == source)


def load_source(exported: Exported, root: Path) -> SourceProgram:
    """Load ``root/exported.program`` and mark its nodes.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    program = load_program(reference_artifact(exported), root)
    modules = {node.name: module_path(node) for node in program.graph.nodes}
    return SourceProgram(program, exported.signature.inputs, mark_nodes(program), modules)


def _limit_rank(
    fixed: FixedProgram, examples: tuple[torch.Tensor, ...], whole: bool
) -> FixedProgram:
    """With at most five axes and without strides, which decompositions may introduce."""
    graph = fixed.program.graph_module
    strided = any("as_strided" in str(node.target) for node in graph.graph.nodes)
    if not strided and not has_many_axes(graph):
        return fixed
    with log_warnings():
        module: Any = fixed.program.module()
        canonicalize.remove_asserts(module)
        module = with_sizes(module, examples)
        rewrites = apply_passes(module, (lower_data_movement.lower_as_strided, merge_axes))
        program = decompose(torch.export.export(module, examples), whole)
    return FixedProgram(program, fixed.rewrites + rewrites)
