"""What the nodes of an exported program range over while it runs; no tensor is kept for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgeserve.backends.inner import Inner, channel_axis

__all__ = ["Ranging", "outcomes"]

#: What converters fuse into the op before it, so that its outcome is what the file's op gives.
#: Activations that only cut off are safe to take where they were not fused: the file's op then
#: ranges over more, never over less.
_FUSED = ("batch_norm", "relu", "clamp", "hardtanh", "dropout", "alias", "clone", "contiguous")

_LONGEST = 4


class Ranging(fx.Interpreter):
    """Runs a graph node by node and notes each float tensor's range.

    Attributes:
        seen: By node.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: dict[str, Inner] = {}

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.op == "call_function" and isinstance(made, torch.Tensor) and made.is_floating_point():
            array = made.detach().float().numpy()
            self.seen[n.name] = Inner.of(array, channel_axis(array.shape))
        return made


def outcomes(module: fx.GraphModule) -> dict[str, str]:
    """For each node the last of those that a converter may fuse into it; itself where none."""
    return {n.name: _outcome(n).name for n in module.graph.nodes if n.op == "call_function"}


def _outcome(node: fx.Node) -> fx.Node:
    for _ in range(_LONGEST):
        users = list(node.users)
        if len(users) != 1 or not _fused(str(users[0].target)):
            break
        node = users[0]
    return node


def _fused(target: str) -> bool:
    name = target.removeprefix("aten.").partition(".")[0].rstrip("_")
    return any(name in (word, f"{word}6", f"_{word}") for word in _FUSED)
