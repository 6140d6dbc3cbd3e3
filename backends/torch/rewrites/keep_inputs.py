"""Let a run change copies of its inputs, so that its caller's tensors stay as they are.

``x.mul_(2)`` on an input changes the caller's tensor in PyTorch. A file's inputs are read only: its
answers are the same, the write to the caller is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["keep_inputs"]

_ATEN = torch.ops.aten


def keep_inputs(module: fx.GraphModule) -> bool:
    """Read inputs that some operator writes to, itself or through a view, through a copy.

    The next export turns writes to a copy into new values.
    """
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    reached = {place for node in module.graph.nodes for place in _places(node)}
    written = [node for node in inputs if node in reached]
    for node in written:
        with module.graph.inserting_before(_behind(inputs)):
            copy = module.graph.call_function(_ATEN.clone.default, (node,))
        copy.meta |= {key: node.meta[key] for key in ("val", "stack_trace") if key in node.meta}
        node.replace_all_uses_with(copy)
        copy.args = (node,)
    return bool(written)


def _behind(inputs: list[fx.Node]) -> fx.Node:
    """The first node after all inputs."""
    node = inputs[-1].next
    while node.op == "placeholder":
        node = node.next
    return node


def _places(node: fx.Node) -> list[fx.Node]:
    """What a node writes to, and what those are views of or were written as."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found: list[fx.Node] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given: Any = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        for each in given if isinstance(given, list | tuple) else (given,):
            while isinstance(each, fx.Node):
                found.append(each)
                each = _viewed(each)
    return found


def _viewed(node: fx.Node) -> Any:
    """What a node may share its memory with; None where it makes memory of its own."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and not any(each.alias_info for each in schema.returns):
        return None
    first = node.args[0] if node.args else None
    return first[0] if isinstance(first, list | tuple) and first else first
