"""Put what a function of tensors computes into a graph, in the place of one of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from edgeserve.backends.torch.rewrites.parts import add_tensor, insert

__all__ = ["inline"]


def inline(
    module: fx.GraphModule, at: fx.Node, function: Callable[..., Any], arguments: Any
) -> Any:
    """Trace a function on the values of nodes, and put its operators before a node.

    Args:
        module: The graph's; tensors that the function makes are stored in it.
        at: The node that the new ones pass for a part of.
        function: Takes tensors in the places of nodes; gives tensors in any tree.
        arguments: Its arguments: a tree of nodes, whose ``meta["val"]`` is known, and of constants.

    Returns:
        What the function gives, nodes in the places of tensors.
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
            there[node] = insert(at, node.target, *args)
            there[node].kwargs = kwargs
            there[node].meta["val"] = node.meta.get("val")
    (results,) = traced.graph.output_node().args
    return [there[each] if isinstance(each, fx.Node) else each for each in results]  # type: ignore[union-attr]
