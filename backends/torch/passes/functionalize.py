"""Replace in-place writes: to inputs, to buffers, and under a mask.

``x.mul_(2)`` on an input changes the caller's tensor in PyTorch. An artifact's inputs are read
only: a run changes copies of them, with the same outputs, and the write to the caller is dropped. A
run also changes copies of the model's buffers, so that runs are independent: a format either has no
state or its own kind, which callers would have to pass.

``x[mask] = v`` with a boolean mask is ``index_put``: PyTorch counts the true elements first, which
no static graph can. If the value is not one for each true element, ``where`` gives the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    arguments_of,
    insert,
    is_mutable,
    kept_meta,
    read_through_copy,
    replace_each,
    tensor_of,
)

_ATEN = torch.ops.aten


def functionalize_inputs(module: fx.GraphModule) -> bool:
    """Read inputs that some operator writes to, itself or through a view, through a copy.

    The next export turns writes to a copy into new values.
    """
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    reached = {place for node in module.graph.nodes for place in _written_by(node)}
    written = [node for node in inputs if node in reached]
    for node in written:
        read_through_copy(node, inputs[-1].next)
    return bool(written)


def _written_by(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node writes to, and those that they are views of."""
    if not is_mutable(node):
        return []
    found: list[fx.Node] = []
    arguments = arguments_of(node)
    for argument in node.target._schema.arguments:  # type: ignore[union-attr]
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given: Any = arguments.get(argument.name)
        for each in given if isinstance(given, list | tuple) else (given,):
            while isinstance(each, fx.Node):
                found.append(each)
                each = _viewed(each)
    return found


def _viewed(node: fx.Node) -> Any:
    """The node that a node may share memory with; None if it allocates its own."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and not any(each.alias_info for each in schema.returns):
        return None
    first = node.args[0] if node.args else None
    return first[0] if isinstance(first, list | tuple) and first else first


def functionalize_buffers(module: fx.GraphModule) -> bool:
    """Where an operator writes to one of its arguments, read all stored tensors through copies.

    The next export turns writes to a copy into new values.
    """
    if not any(map(is_mutable, module.graph.nodes)):
        return False
    for node in module.graph.find_nodes(op="get_attr"):
        read_through_copy(node, node.next)
    return True


_IN_PLACE = _ATEN.index_put_.default


def lower_masked_write(module: fx.GraphModule) -> bool:
    """Replace writes under one mask, whose value is the same wherever the mask is true."""
    writes = (_ATEN.index_put.default, _IN_PLACE)
    return replace_each(module, writes, lambda node: _where(module, node))


def _where(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The ``where`` that replaces a write; None if there is none."""
    x, indices, value, adds = arguments_of(node).values()
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
    """Whether a value is the same for all true elements."""
    if mask.dtype != torch.bool or not mask.dim() or value.dtype != into.dtype:
        return False
    behind = into.dim() - axis - mask.dim()
    return behind >= 0 and (value.dim() <= behind or value.shape[-behind - 1] == 1)
