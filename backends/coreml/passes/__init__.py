"""Additions to coremltools: node names, corrected translations of operators, argument checks.

Each module of this package is one of them. They replace coremltools' own from the first export on,
in the exporting process.
"""

from __future__ import annotations

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.coreml.passes import lowerings
from edgeserve.backends.coreml.passes.argument_checks import check_unread_keywords

__all__ = ["register_lowerings"]


def register_lowerings() -> None:
    """Register the translations in coremltools' table, and wrap all with the check; once.

    ``grid_sampler_2d`` takes ``grid_sampler``'s arguments, an ``alias`` is its input.
    """
    coremltools()
    from coremltools.converters.mil.frontend.torch import ops
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    table = {
        "alias": ops.noop,
        "grid_sampler_2d": ops.grid_sampler,
        **lowerings.ACTIVATIONS,
        **lowerings.ARITHMETIC,
        **lowerings.CONSTANTS,
        **lowerings.RECURRENT,
        **lowerings.REDUCTIONS,
    }
    for name, function in table.items():
        _TORCH_OPS_REGISTRY.set_func_by_name(function, name)
    check_unread_keywords(_TORCH_OPS_REGISTRY.name_to_func_mapping)
