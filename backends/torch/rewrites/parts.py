"""What rewrites need of a graph: tensors behind nodes, sizes, and new nodes that keep their origin.

Every node's ``meta["val"]`` is its tensor as traced; `with_sizes` traces it anew for fixed sizes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from edgeserve.backends.torch.buffers import Buffers
from edgeserve.backends.torch.program import log_warnings

__all__ = ["add_tensor", "insert", "shape_of", "tensor_of", "with_sizes"]


def with_sizes(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """A copy of a graph, over the same tensors, whose values have the sizes of these inputs."""
    with log_warnings():
        copied = fx.GraphModule(module, copy.deepcopy(module.graph))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    buffers = Buffers(copied)
    with torch.no_grad():
        FakeTensorProp(copied, mode).propagate(*inputs)
    buffers.restore()  # what a forward does to its buffers happens even in a trial without numbers
    return copied


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """Sizes of a node's tensor; None where it is no tensor or a size is not fixed."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    sizes = tuple(value.shape)
    return sizes if all(isinstance(size, int) for size in sizes) else None


def tensor_of(module: fx.GraphModule, node: object) -> torch.Tensor | None:
    """The stored tensor that a node reads; None where it reads none."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found = functools.reduce(getattr, str(node.target).split("."), module)
    return found.detach() if isinstance(found, torch.Tensor) else None


def add_tensor(module: fx.GraphModule, name: str, tensor: torch.Tensor, before: fx.Node) -> fx.Node:
    """Store a tensor under a new name that starts with ``name``; the node that reads it."""
    number = sum(held.startswith(name) for held, _ in module.named_buffers(recurse=False))
    module.register_buffer(f"{name}_{number}", tensor)
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(f"{name}_{number}")
    node.meta["val"] = tensor
    return node


def insert(at: fx.Node, operator: Any, *arguments: Any) -> fx.Node:
    """A call before a node, which passes for a part of it: it keeps its origin, not its value."""
    with at.graph.inserting_before(at):
        made = at.graph.call_function(operator, arguments)
    made.meta = {key: value for key, value in at.meta.items() if key != "val"}
    return made
