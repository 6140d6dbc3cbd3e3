"""Writes to memory without a write: to inputs, to buffers, and under a mask.

``x.mul_(2)`` on an input changes the caller's tensor in PyTorch. A file's inputs are read only:
a run changes copies of them, its answers are the same, the write to the caller is left out. A
run also changes copies of the model's buffers, so that one run knows nothing of another: a
format either has no state or has one of its own, which callers would have to hand in and out.

``x[mask] = v`` with a mask of truth values is ``index_put``: PyTorch counts the true places
first, which no fixed graph can. Where the value is not one for each true place, ``where`` gives
the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import insert, kept_meta, tensor_of

__all__ = ["functionalize_buffers", "functionalize_inputs", "lower_masked_write"]


_ATEN = torch.ops.aten


def functionalize_inputs(module: fx.GraphModule) -> bool:
    """Read inputs that some operator writes to, itself or through a view, through a copy.

    The next export turns writes to a copy into new values.
    """
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    reached = {place for node in module.graph.nodes for place in _written_by(node)}
    written = [node for node in inputs if node in reached]
    for node in written:
        with module.graph.inserting_before(_after_inputs(inputs)):
            copy = module.graph.call_function(_ATEN.clone.default, (node,))
        copy.meta |= {key: node.meta[key] for key in ("val", "stack_trace") if key in node.meta}
        node.replace_all_uses_with(copy)
        copy.args = (node,)
    return bool(written)


def _after_inputs(inputs: list[fx.Node]) -> fx.Node:
    """The first node after all inputs."""
    node = inputs[-1].next
    while node.op == "placeholder":
        node = node.next
    return node


def _written_by(node: fx.Node) -> list[fx.Node]:
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


def functionalize_buffers(module: fx.GraphModule) -> bool:
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


_IN_PLACE = _ATEN.index_put_.default


def lower_masked_write(module: fx.GraphModule) -> bool:
    """Replace writes under one mask, whose value is the same wherever the mask is true."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in (_ATEN.index_put.default, _IN_PLACE) and (
            spelled := _where(module, node)
        ):
            node.replace_all_uses_with(spelled)
            module.graph.erase_node(node)
            changed = True
    return changed


def _where(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The choice that stands for a write; None where there is none."""
    x: Any = node.args[0]
    indices: Any = node.args[1]
    value: Any = node.args[2]
    adds = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    masks = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if adds or len(masks) != 1:
        return None
    (axis, mask), into = masks[0], _value(module, x)
    truth, given = _value(module, mask), _value(module, value)
    if into is None or truth is None or given is None or not _is_choice(into, axis, truth, given):
        return None
    behind = into.dim() - axis - truth.dim()
    for _ in range(behind):
        mask = insert(node, _ATEN.unsqueeze.default, mask, -1)
    if given.dim() > behind:  # its axis of true places has one size: it spreads over the mask's
        for _ in range(truth.dim() - 1):
            value = insert(node, _ATEN.unsqueeze.default, value, -behind - 1)
    made = insert(node, _ATEN.where.self, mask, value, x)
    made.meta = kept_meta(node)
    if node.target is not _IN_PLACE:
        return made
    written = insert(node, _ATEN.copy_.default, x, made)
    written.meta = kept_meta(node)
    return written


def _value(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else tensor_of(module, node)


def _is_choice(into: torch.Tensor, axis: int, mask: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a value does not tell one true place from another."""
    if mask.dtype != torch.bool or not mask.dim() or value.dtype != into.dtype:
        return False
    behind = into.dim() - axis - mask.dim()
    return behind >= 0 and (value.dim() <= behind or value.shape[-behind - 1] == 1)
