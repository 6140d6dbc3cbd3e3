"""Additions to coremltools: node names, corrected translations of operators, argument checks.

Each module of this package is one of them. They replace coremltools' own from the first export on,
in the exporting process.
"""

from __future__ import annotations

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.backends.coreml.passes.argument_checks import check_unread_keywords

__all__ = ["register_lowerings"]


def register_lowerings() -> None:
    """Register the translations in coremltools' table, and wrap all with the check; once."""
    coremltools()
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    from edgeserve.backends.coreml.passes.lowerings import LOWERINGS

    for name, function in LOWERINGS.items():
        _TORCH_OPS_REGISTRY.set_func_by_name(function, name)
    check_unread_keywords(_TORCH_OPS_REGISTRY.name_to_func_mapping)
