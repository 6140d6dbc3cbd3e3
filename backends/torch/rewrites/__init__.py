"""Rewrites of an exported graph that formats may ask for: small, exact and about no architecture.

A rewrite edits the plain graph of ``program.module()`` and tells whether it changed anything; the
caller then exports that module again, so that torch itself redoes shapes and signature. Each lies
in a module of its own name. None changes what the module answers but by float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx
from torch.export import ExportedProgram

from edgeserve.backends.torch.rewrites.blank_blind_rows import blank_blind_rows
from edgeserve.backends.torch.rewrites.choose_by_mask import choose_by_mask
from edgeserve.backends.torch.rewrites.copy_contiguous import copy_contiguous
from edgeserve.backends.torch.rewrites.drop_asserts import drop_asserts
from edgeserve.backends.torch.rewrites.drop_expand import drop_expand
from edgeserve.backends.torch.rewrites.drop_idle import drop_idle
from edgeserve.backends.torch.rewrites.expand_to_cat import expand_to_cat
from edgeserve.backends.torch.rewrites.fold_batch_norm import fold_batch_norm
from edgeserve.backends.torch.rewrites.fold_constants import fold_constants
from edgeserve.backends.torch.rewrites.keep_epsilons import keep_epsilons
from edgeserve.backends.torch.rewrites.keep_inputs import keep_inputs
from edgeserve.backends.torch.rewrites.merge_axes import merge_axes
from edgeserve.backends.torch.rewrites.plain_names import plain_names
from edgeserve.backends.torch.rewrites.pool_adaptively import pool_adaptively
from edgeserve.backends.torch.rewrites.pool_by_slices import pool_by_slices
from edgeserve.backends.torch.rewrites.relabel_strides import relabel_strides
from edgeserve.backends.torch.rewrites.resize_by_lookup import resize_by_lookup
from edgeserve.backends.torch.rewrites.resize_by_matrices import resize_by_matrices
from edgeserve.backends.torch.rewrites.roll_by_slices import roll_by_slices
from edgeserve.backends.torch.rewrites.spell_alpha import spell_alpha
from edgeserve.backends.torch.rewrites.spell_complex import spell_complex
from edgeserve.backends.torch.rewrites.spell_division import spell_division
from edgeserve.backends.torch.rewrites.spell_divisor import spell_divisor
from edgeserve.backends.torch.rewrites.spell_padding import spell_padding
from edgeserve.backends.torch.rewrites.split_groups import split_groups
from edgeserve.backends.torch.rewrites.spread_transposed import spread_transposed, spread_uneven
from edgeserve.backends.torch.rewrites.unfold_by_convolution import unfold_by_convolution

__all__ = [
    "Rewrite",
    "apply",
    "apply_in_place",
    "blank_blind_rows",
    "choose_by_mask",
    "copy_contiguous",
    "drop_asserts",
    "drop_expand",
    "drop_idle",
    "expand_to_cat",
    "fold_batch_norm",
    "fold_constants",
    "keep_epsilons",
    "keep_inputs",
    "merge_axes",
    "plain_names",
    "pool_adaptively",
    "pool_by_slices",
    "relabel_strides",
    "resize_by_lookup",
    "resize_by_matrices",
    "roll_by_slices",
    "spell_alpha",
    "spell_complex",
    "spell_division",
    "spell_divisor",
    "spell_padding",
    "split_groups",
    "spread_transposed",
    "spread_uneven",
    "unfold_by_convolution",
]

#: Edits a graph in place; whether it changed anything.
Rewrite = Callable[[fx.GraphModule], bool]


def apply(module: fx.GraphModule, rewrites: Iterable[Rewrite]) -> tuple[str, ...]:
    """Apply rewrites in order.

    Returns:
        Names of those that changed something.
    """
    changed = []
    for rewrite in rewrites:
        if rewrite(module):
            changed.append(str(getattr(rewrite, "__name__", rewrite)))
            module.graph.eliminate_dead_code()
            module.recompile()
    return tuple(changed)


def apply_in_place(program: ExportedProgram, rewrites: Iterable[Rewrite]) -> tuple[str, ...]:
    """Apply rewrites to a program without another trace; such as store no tensors.

    Returns:
        Names of those that changed something.
    """
    output = program.graph.output_node()
    before = [node.name for node in output.all_input_nodes]
    places = [str(node) for node in output.args[0]]
    changed = apply(program.graph_module, rewrites)
    for spec, old, node in zip(
        program.graph_signature.output_specs, places, output.args[0], strict=True
    ):
        if old in before and isinstance(node, fx.Node) and node.name != old:
            spec.arg.name = node.name
    return changed
