"""Let a run change copies of the model's buffers, so that one run knows nothing of another.

A format either has no state or has one of its own, which callers would have to hand in and out.
"""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["drop_state"]

_ATEN = torch.ops.aten


def drop_state(module: fx.GraphModule) -> bool:
    """Where an operator writes to one of its arguments, read all stored tensors through copies.

    The next export turns writes to a copy into new values.
    """
    if not any(_writes(node) for node in module.graph.nodes):
        return False
    for node in module.graph.find_nodes(op="get_attr"):
        with module.graph.inserting_after(node):
            copy = module.graph.call_function(_ATEN.clone.default, (node,))
        copy.meta |= {key: node.meta[key] for key in ("val", "stack_trace") if key in node.meta}
        node.replace_all_uses_with(copy)
        copy.args = (node,)
    return True


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.is_mutable)
