"""Passes over an exported graph, applied per format: small, exact and architecture-independent.

A pass edits the plain graph of ``program.module()`` and returns whether it changed anything; the
caller then exports that module again, so that torch itself recomputes shapes and signature. No pass
changes the module's outputs beyond float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.torch.passes.canonicalize import (
    canonicalize_ops,
    copy_contiguous,
    remove_asserts,
    remove_noops,
)
from edgeserve.backends.torch.passes.fold import fold_batch_norm, fold_constants
from edgeserve.backends.torch.passes.functionalize import functionalize_inputs, lower_masked_write
from edgeserve.backends.torch.passes.lower_arithmetic import (
    lower_alpha,
    lower_division,
    preserve_tiny_constants,
)
from edgeserve.backends.torch.passes.lower_complex import lower_complex
from edgeserve.backends.torch.passes.lower_convolution import (
    lower_conv_transpose3d,
    lower_output_padded_conv3d,
    lower_padding,
    split_groups,
)
from edgeserve.backends.torch.passes.lower_data_movement import (
    lower_as_strided,
    roll_by_slices,
    unfold_by_convolution,
)
from edgeserve.backends.torch.passes.lower_expand import expand_to_cat, remove_expand
from edgeserve.backends.torch.passes.lower_pooling import (
    lower_adaptive_pool,
    lower_divisor,
    pool_by_slices,
)
from edgeserve.backends.torch.passes.lower_resize import resize_by_lookup, resize_by_matrices
from edgeserve.backends.torch.passes.merge_axes import merge_axes
from edgeserve.backends.torch.passes.zero_fully_masked_rows import zero_fully_masked_rows

__all__ = [
    "Pass",
    "apply_passes",
    "apply_passes_in_place",
    "canonicalize_ops",
    "copy_contiguous",
    "expand_to_cat",
    "fold_batch_norm",
    "fold_constants",
    "functionalize_inputs",
    "lower_adaptive_pool",
    "lower_alpha",
    "lower_as_strided",
    "lower_complex",
    "lower_conv_transpose3d",
    "lower_division",
    "lower_divisor",
    "lower_masked_write",
    "lower_output_padded_conv3d",
    "lower_padding",
    "merge_axes",
    "pool_by_slices",
    "preserve_tiny_constants",
    "remove_asserts",
    "remove_expand",
    "remove_noops",
    "resize_by_lookup",
    "resize_by_matrices",
    "roll_by_slices",
    "split_groups",
    "unfold_by_convolution",
    "zero_fully_masked_rows",
]

#: Edits a graph in place; whether it changed anything.
Pass = Callable[[fx.GraphModule], bool]


def apply_passes(module: fx.GraphModule, rewrites: Iterable[Pass]) -> tuple[str, ...]:
    """Apply passes in order.

    Returns:
        Names of the passes that changed the graph.
    """
    changed = []
    for rewrite in rewrites:
        if rewrite(module):
            changed.append(str(getattr(rewrite, "__name__", rewrite)))
            module.graph.eliminate_dead_code()
            module.recompile()
    return tuple(changed)


def apply_passes_in_place(program: ExportedProgram, rewrites: Iterable[Pass]) -> tuple[str, ...]:
    """Apply passes that store no tensors to a program, without another trace.

    Returns:
        Names of the passes that changed the graph.
    """
    output = program.graph.output_node()
    before = [node.name for node in output.all_input_nodes]
    places = [str(node) for node in output.args[0]]
    changed = apply_passes(program.graph_module, rewrites)
    for spec, old, node in zip(
        program.graph_signature.output_specs, places, output.args[0], strict=True
    ):
        if old in before and isinstance(node, fx.Node) and node.name != old:
            spec.arg.name = node.name
    return changed
