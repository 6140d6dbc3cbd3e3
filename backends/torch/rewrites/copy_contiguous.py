"""Ask for contiguous memory in words that no trace leaves out, and reshape where a view was.

``contiguous()`` of a tensor that is so already is no operator of its own when a program is traced
again, say with attention taken apart. The views behind it then meet other strides and are illegal.
A copy with a memory format is always there, and a reshape holds whatever the strides.
"""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["copy_contiguous"]

_ATEN = torch.ops.aten
_VIEWS = {_ATEN.view.default, _ATEN._unsafe_view.default}


def copy_contiguous(module: fx.GraphModule) -> bool:
    """Make ``contiguous`` a ``clone`` and ``view`` a ``reshape``, in place and with their names."""
    changed = False
    for node in module.graph.nodes:
        if node.target is _ATEN.contiguous.default:
            node.target, node.args = _ATEN.clone.default, node.args[:1]
            node.kwargs = {"memory_format": torch.contiguous_format}
            changed = True
        elif node.target in _VIEWS:
            node.target = _ATEN.reshape.default
            changed = True
    return changed
