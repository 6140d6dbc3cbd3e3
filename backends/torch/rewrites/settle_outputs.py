"""Give every output a dtype that a format has, and an operator of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

__all__ = ["needs_sizes", "settle_outputs"]

_ATEN = torch.ops.aten

#: What stands for a dtype where only float32 and int32 come out.
_PLAIN = {
    torch.bool: torch.int32,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}


def needs_sizes(module: fx.GraphModule) -> bool:
    """Whether `settle_outputs` has to be told the sizes: an output would be one value twice."""
    given: Any = module.graph.output_node().args[0]
    own = [node for node in given if node.meta["val"].dtype not in _PLAIN]
    return len(set(own)) < len(own) or any(node.op != "call_function" for node in own)


def settle_outputs(module: fx.GraphModule) -> bool:
    """Make every output float32 or int32, and the result of an operator that makes nothing else.

    An input, a constant or an earlier output given back as it is would be one value with two names,
    which some converters cannot write. Where that is so (`needs_sizes`) the graph's values must
    have fixed sizes (`with_sizes`).
    """
    output = module.graph.output_node()
    given: Any = output.args[0]
    settled: list[fx.Node] = []
    with module.graph.inserting_before(output):
        for node in given:
            settled.append(_settled(module.graph, node, settled))
    output.args = (tuple(settled),)
    return settled != list(given)


def _settled(graph: fx.Graph, node: fx.Node, before: Sequence[fx.Node]) -> fx.Node:
    value = node.meta["val"]
    if value.dtype in _PLAIN:
        made = graph.call_function(_ATEN.to.dtype, (node, _PLAIN[value.dtype]))
    elif node.op != "call_function" or node in before:
        made = graph.call_function(_ATEN.reshape.default, (node, list(value.shape)))
    else:
        return node
    made.meta["stack_trace"] = node.meta.get("stack_trace")
    return made
