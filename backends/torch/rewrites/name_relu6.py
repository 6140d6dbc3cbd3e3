"""Write the clips of activations as converters expect them.

PyTorch's ``ReLU6`` is a ``hardtanh`` with two numbers. Converters know ``relu6`` as an activation,
which they fuse with the layer before it, and take a clip for something else. A clip whose bounds
are written as integers, though its values are not, stops one of them.
"""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["float_bounds", "name_relu6"]

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


def float_bounds(module: fx.GraphModule) -> bool:
    """Write the bounds of ``hardtanh`` as floats where its input is floating point."""
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=_ATEN.hardtanh.default):
        x, *bounds = node.args
        if any(isinstance(bound, int) for bound in bounds) and _is_float(x):
            node.args = (x, *(float(bound) for bound in bounds))
            changed = True
    return changed


def _is_float(node: object) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()
