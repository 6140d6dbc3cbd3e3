"""Rewrites of an exported graph that formats may ask for: small, exact and about no architecture.

A rewrite edits the plain graph of ``program.module()`` and tells whether it changed anything; the
caller then exports that module again, so that torch itself redoes shapes and signature. Each lies
in a module of its own name. None changes what the module answers but by float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx

from edgeserve.backends.torch.rewrites.drop_asserts import drop_asserts
from edgeserve.backends.torch.rewrites.drop_expand import drop_expand
from edgeserve.backends.torch.rewrites.drop_idle import drop_idle
from edgeserve.backends.torch.rewrites.expand_to_cat import expand_to_cat
from edgeserve.backends.torch.rewrites.fold_batch_norm import fold_batch_norm

__all__ = [
    "Rewrite",
    "apply",
    "drop_asserts",
    "drop_expand",
    "drop_idle",
    "expand_to_cat",
    "fold_batch_norm",
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
