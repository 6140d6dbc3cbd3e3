"""Call a clip to 0..6 by its name.

PyTorch's ``ReLU6`` is a ``hardtanh`` with two numbers. Converters know ``relu6`` as an activation,
which they fuse with the layer before it, and take a clip for something else.
"""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["name_relu6"]

_ATEN = torch.ops.aten


def name_relu6(module: fx.GraphModule) -> bool:
    """Replace ``hardtanh(x, 0, 6)`` by ``relu6(x)``; core ATen turns it back again."""
    clips = [
        node
        for node in module.graph.find_nodes(op="call_function", target=_ATEN.hardtanh.default)
        if tuple(node.args[1:]) == (0.0, 6.0)
    ]
    for node in clips:
        node.target, node.args = _ATEN.relu6.default, node.args[:1]
    return bool(clips)
