"""Remove an expansion that elementwise operators would do by themselves.

``a * b.expand_as(a)`` is ``a * b``. Some converters move layouts around and forget the sizes that
an expansion names; without it there is nothing to forget.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import fx

from edgeserve.backends.torch.rewrites.parts import shape_of

__all__ = ["drop_expand"]

_ATEN = torch.ops.aten
_EXPANSIONS = {_ATEN.broadcast_to.default, _ATEN.expand.default, _ATEN.expand_as.default}
_ELEMENTWISE = {
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
    _ATEN.mul.Tensor,
    _ATEN.div.Tensor,
    _ATEN.maximum.default,
    _ATEN.minimum.default,
}


def drop_expand(module: fx.GraphModule) -> bool:
    """Remove expansions read by elementwise operators only, where the result stays as large.

    The graph's values must have fixed sizes (`with_sizes`).
    """
    dropped = False
    for node in list(module.graph.nodes):
        if node.target in _EXPANSIONS and _is_idle(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
            dropped = True
    return dropped


def _is_idle(node: fx.Node) -> bool:
    return bool(node.users) and all(_same_without(user, node) for user in node.users)


def _same_without(user: fx.Node, expansion: fx.Node) -> bool:
    """Whether an operator gives the same shape when it reads the expansion's input instead."""
    if user.target not in _ELEMENTWISE:
        return False
    reads = [read.args[0] if read is expansion else read for read in user.all_input_nodes]
    shapes = [shape_of(read) for read in reads if isinstance(read, fx.Node)]
    known = [shape for shape in shapes if shape is not None]
    return len(known) == len(shapes) and np.broadcast_shapes(*known) == shape_of(user)
