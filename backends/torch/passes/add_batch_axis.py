"""Give convolutions and pools of one sample the batch axis that converters ask for.

PyTorch takes ``[channels, ...]`` as well as ``[batch, channels, ...]``. LiteRT's converter has no
translation for some of the former, and one that fails for others; ``torch.onnx.export`` pads four
axes of ``unfold``.
"""

from __future__ import annotations

import re

import torch
from torch import fx

from edgeserve.backends.torch.passes.axis_moves import call_again, hand_on, reshaped
from edgeserve.backends.torch.passes.fx_utils import shape_of

#: Operators over the last one, two or three axes, behind the channels.
_SPATIAL = re.compile(
    r"aten\.(?:im2col|(?:conv|(?:adaptive_)?(?:avg|max)_pool|conv_transpose)(\d)d)\."
)


def add_batch_axis(module: fx.GraphModule) -> bool:
    """Reshape the input and the results of such operators; values must have fixed sizes."""
    found = [node for node in module.graph.nodes if _has_no_batch(node)]
    for node in found:
        x = node.args[0]
        made = call_again(node, {x: reshaped(node, x, [1, *(shape_of(x) or ())])})
        if isinstance(value := node.meta.get("val"), torch.Tensor):  # later passes read it
            made.meta["val"] = value.new_empty([1, *value.shape])
        hand_on(node, made)
        module.graph.erase_node(node)
    return bool(found)


def _has_no_batch(node: fx.Node) -> bool:
    match = _SPATIAL.match(str(node.target))
    sizes = shape_of(node.args[0]) if match else None
    return bool(match and sizes and len(sizes) == int(match[1] or 2) + 1)
