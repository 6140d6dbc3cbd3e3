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

__all__ = ["add_tensor", "functional", "insert", "kept_meta", "shape_of", "tensor_of", "with_sizes"]

_ATEN = torch.ops.aten

#: Metadata that tells of a node's value, not of where it comes from.
_OF_ITS_VALUE = ("val", "tensor_meta", "example_value", "unbacked_bindings", "torch_fn")


def functional(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The graph without operators that write to their arguments, traced anew for these inputs.

    Where there are none it is the graph itself.
    """
    schemas = (getattr(node.target, "_schema", None) for node in module.graph.nodes)
    if not any(schema and schema.is_mutable for schema in schemas):
        return module
    with log_warnings():
        program = torch.export.export(module, tuple(inputs)).run_decompositions({})
        made: Any = program.module(check_guards=False)
    return made  # type: ignore[no-any-return]


def with_sizes(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """A copy of a graph, over the same tensors, whose values have the sizes of these inputs."""
    with log_warnings():
        copied = fx.GraphModule(module, copy.deepcopy(module.graph))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    buffers = Buffers(copied)
    with torch.no_grad():
        _Sizes(copied, mode).propagate(*inputs)
    buffers.restore()  # what a forward does to its buffers happens even in a trial without numbers
    _settle_numbers(copied)
    return copied


class _Sizes(FakeTensorProp):
    """Values without numbers, also of the operator that looks at numbers it does not need."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not _ATEN.istft.default:
            return super().call_function(target, args, kwargs)
        return _signal(*args, **kwargs)


def _signal(
    x: torch.Tensor,
    n_fft: int,
    hop: int | None = None,
    win: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    complex: bool = False,
) -> torch.Tensor:
    """An empty tensor of the shape that ``istft`` gives; torch asks whether windows sum to zero."""
    step = n_fft // 4 if hop is None else hop
    whole = n_fft + step * (x.shape[-1] - 1) - (n_fft // 2 * 2 if center else 0)
    made = x.new_empty([*x.shape[:-2], whole if length is None else length])
    return made if complex else made.real


def _settle_numbers(module: fx.GraphModule) -> None:
    """Put the sizes themselves where nodes computed them."""
    for node in list(module.graph.nodes):
        number = node.meta.get("val")
        if node.op != "call_function" or type(number) not in (int, float, bool):
            continue
        for user in [user for user in node.users if user.op != "output"]:
            user.args = fx.map_arg(user.args, lambda read: number if read is node else read)  # noqa: B023
            user.kwargs = fx.map_arg(user.kwargs, lambda read: number if read is node else read)  # noqa: B023
    module.graph.eliminate_dead_code()
    module.recompile()


def shape_of(node: object) -> tuple[int, ...] | None:
    """Sizes of a node's tensor; None where it is no tensor or a size is not fixed."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
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
    made.meta = {key: value for key, value in at.meta.items() if key not in _OF_ITS_VALUE}
    return made


def kept_meta(node: fx.Node) -> dict[str, Any]:
    """The metadata for a node that takes this one's place: its origin and its value."""
    return {key: value for key, value in node.meta.items() if key not in _OF_ITS_VALUE[1:]}
