"""Graph utilities for passes: tensors and arguments of nodes, sizes, new nodes with their origin.

Every node's ``meta["val"]`` is its traced tensor; `with_sizes` traces the graph again for fixed
sizes. `inline` traces a function of tensors into a graph, in place of one of its nodes.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot
from edgeserve.backends.torch.program.io import log_warnings

_ATEN = torch.ops.aten

#: Metadata about a node's value, not about its origin.
_VALUE_META = ("val", "tensor_meta", "example_value", "unbacked_bindings", "torch_fn")


def functional(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The graph without operators that write to their arguments, traced again for these inputs.

    Returns the graph itself if it has none.
    """
    if not any(map(is_mutable, module.graph.nodes)):
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
    buffers = BufferSnapshot(copied)
    with torch.no_grad():
        _SizePropagation(copied, mode).propagate(*inputs)
    buffers.restore()  # a forward with fake tensors changes buffers too
    _inline_sizes(copied)
    return copied


class _SizePropagation(FakeTensorProp):
    """Fake tensor propagation that also supports ``istft``, which reads values it does not need."""

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


def _inline_sizes(module: fx.GraphModule) -> None:
    """Replace nodes that compute sizes by the sizes."""
    for node in list(module.graph.nodes):
        number = node.meta.get("val")
        if node.op != "call_function" or type(number) not in (int, float, bool):
            continue
        read_instead(node, number, [user for user in node.users if user.op != "output"])
    module.graph.eliminate_dead_code()
    module.recompile()


def shape_of(node: object) -> tuple[int, ...] | None:
    """Sizes of a node's tensor; None where it is no tensor or a size is not fixed."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return None
    sizes = tuple(value.shape)
    return sizes if all(isinstance(size, int) for size in sizes) else None


def dtype_of(node: object) -> torch.dtype | None:
    """Dtype of a node's tensor; None where it is no tensor or not known."""
    return getattr(node.meta.get("val"), "dtype", None) if isinstance(node, fx.Node) else None


def is_float(node: object) -> bool:
    """Whether a node's value is a floating point tensor."""
    dtype = dtype_of(node)
    return dtype is not None and dtype.is_floating_point


def is_mutable(node: fx.Node) -> bool:
    """Whether a node's operator writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.is_mutable)


def overloads(names: str) -> set[Any]:
    """Operators of ATen from words: ``add.Tensor``, or ``relu`` for ``relu.default``."""
    words = (name if "." in name else f"{name}.default" for name in names.split())
    return {operator.attrgetter(word)(_ATEN) for word in words}


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of a node's operator by schema name, in order; defaults where none is given."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {each.name: value for each, value in zip(schema, node.args, strict=False)}
    given |= node.kwargs
    return {each.name: given.get(each.name, each.default_value) for each in schema}


def read_through_copy(node: fx.Node, before: fx.Node) -> None:
    """Let all readers of a node read a clone of it, which is made before another node."""
    with node.graph.inserting_before(before):
        copied = node.graph.call_function(_ATEN.clone.default, (node,))
    copied.meta |= {key: node.meta[key] for key in ("val", "stack_trace") if key in node.meta}
    node.replace_all_uses_with(copied)
    copied.args = (node,)


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


def insert(at: fx.Node, operator: Any, *arguments: Any, **named: Any) -> fx.Node:
    """A call before a node, with the node's origin but not its value."""
    with at.graph.inserting_before(at):
        made = at.graph.call_function(operator, arguments, named)
    made.meta = {key: value for key, value in at.meta.items() if key not in _VALUE_META}
    return made


def call_with_value(at: fx.Node, operator: Any, *arguments: Any, **named: Any) -> fx.Node:
    """`insert` a call and compute its value from those of its arguments."""
    made = insert(at, operator, *arguments, **named)
    args, kwargs = fx.map_arg((made.args, made.kwargs), lambda node: node.meta["val"])
    with torch.no_grad():
        made.meta["val"] = operator(*args, **kwargs)
    return made


def replace_each(
    module: fx.GraphModule, operators: Container[Any], lower: Callable[[fx.Node], Any]
) -> bool:
    """Put what ``lower`` gives for each call of some operators in its place; whether any was.

    Args:
        module: The graph's.
        operators: Whose calls are given to ``lower``.
        lower: Inserts nodes before a node and returns the one that has its value; None leaves it.
    """
    changed = False
    for node in list(module.graph.nodes):
        made = lower(node) if node.target in operators else None
        if made is not None:
            if "val" in node.meta:
                made.meta.setdefault("val", node.meta["val"])
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
            changed = True
    return changed


def read_instead(node: fx.Node, value: Any, readers: Iterable[fx.Node]) -> None:
    """Let some readers of a node have a number in its place."""
    for user in readers:
        args, kwargs = user.args, user.kwargs
        user.args = fx.map_arg(args, lambda read: value if read is node else read)
        user.kwargs = fx.map_arg(kwargs, lambda read: value if read is node else read)


def per_axis(given: Any, rank: int) -> list[Any]:
    """What an operator takes for each axis, given as one number or as a list of one or of all."""
    each = list(given) if isinstance(given, list | tuple) else [given]
    return each * (rank // max(len(each), 1))


def kept_meta(node: fx.Node) -> dict[str, Any]:
    """The metadata for a replacement of a node: its origin and its value."""
    return {key: value for key, value in node.meta.items() if key not in _VALUE_META[1:]}


def inline(
    module: fx.GraphModule, at: fx.Node, function: Callable[..., Any], arguments: Any
) -> Any:
    """Trace a function on the values of nodes, and insert its operators before a node.

    Args:
        module: The graph's; tensors that the function makes are stored in it.
        at: The node whose origin the new nodes get.
        function: Takes tensors for nodes; returns a tree of tensors.
        arguments: A tree of nodes, whose ``meta["val"]`` is known, and of constants.

    Returns:
        The function's result, with nodes for tensors.
    """
    leaves, tree = tree_flatten(arguments, is_leaf=lambda each: isinstance(each, fx.Node))
    nodes = [each for each in leaves if isinstance(each, fx.Node)]
    shape: list[Any] = []

    def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        filled = [next(given) if isinstance(each, fx.Node) else each for each in leaves]
        made, spec = tree_flatten(function(*tree_unflatten(filled, tree)))
        shape[:] = [spec]
        return made

    with torch.no_grad():
        traced = make_fx(flat, _allow_non_fake_inputs=True)(*[n.meta["val"] for n in nodes])
    return tree_unflatten(_copied(module, at, traced, nodes), shape[0])


def _copied(
    module: fx.GraphModule, at: fx.Node, traced: fx.GraphModule, nodes: Sequence[fx.Node]
) -> list[Any]:
    given = iter(nodes)
    there: dict[fx.Node, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            there[node] = next(given)
        elif node.op == "get_attr":
            there[node] = add_tensor(module, "made", getattr(traced, str(node.target)), at)
        elif node.op == "call_function":
            args, kwargs = tree_map(
                lambda each: there.get(each, each) if isinstance(each, fx.Node) else each,
                (node.args, node.kwargs),
            )
            there[node] = insert(at, node.target, *args, **kwargs)
            there[node].meta["val"] = node.meta.get("val")
    (results,) = traced.graph.output_node().args
    return [there[each] if isinstance(each, fx.Node) else each for each in results]  # type: ignore[union-attr]
