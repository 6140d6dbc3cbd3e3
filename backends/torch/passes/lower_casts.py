"""Lower casts and sums of narrow integers for a format that has 32 bits only.

Core ML computes 8-bit and 16-bit integers in 32 bits, where ``255 + 1`` is 256 and not 0. Their
results are wrapped to the dtype's range. coremltools also leaves out casts from integers to floats
and back, which round beyond 2^24: an operation between them keeps both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.passes.fx_utils import inline, insert, is_float, overloads

_ATEN = torch.ops.aten
_NARROW = (torch.uint8, torch.int8, torch.int16)
_CASTS = overloads("to.dtype _to_copy")
_WRAPPING = _CASTS | overloads(
    "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar rsub.Tensor mul.Tensor mul.Scalar neg "
    "square"
)


def lower_casts(module: fx.GraphModule) -> bool:
    """Wrap narrow integers, and keep roundings of integers; ``meta["val"]`` must be known."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _CASTS and _rounds_integers(node):
            node.args = (insert(node, _ATEN.floor.default, node.args[0]), *node.args[1:])
            changed = True
        elif node.target in _WRAPPING and _leaves_range(node):
            _wrap(module, node)
            changed = True
    return changed


def _dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _rounds_integers(node: fx.Node) -> bool:
    """Whether a cast to an integer reads a cast of an integer to a float."""
    source: Any = node.args[0]
    back = source.target in _CASTS and is_float(source) and not is_float(node)
    return back and not is_float(source.args[0]) and _dtype(node) is not torch.bool


def _leaves_range(node: fx.Node) -> bool:
    """Whether an operator with a narrow result reads integers, and so may exceed its range."""
    kinds = {_dtype(each) for each in node.all_input_nodes}
    wide = node.target not in _CASTS or not kinds <= {torch.bool, _dtype(node)}
    return _dtype(node) in _NARROW and wide and not any(map(is_float, node.all_input_nodes))


def _wrap(module: fx.GraphModule, node: fx.Node) -> None:
    dtype: Any = _dtype(node)
    readers = list(node.users)
    with node.graph.inserting_after(node):
        after = node.graph.call_function(_ATEN.clone.default, (node,))
    after.meta |= node.meta
    made = inline(module, after, lambda x: _wrapped(x, dtype), (node,))
    for user in readers:
        user.replace_input_with(node, made)
    module.graph.erase_node(after)


def _wrapped(x: Tensor, dtype: torch.dtype) -> Tensor:
    info = torch.iinfo(dtype)
    whole = torch.remainder(x.to(torch.int32) - info.min, info.max - info.min + 1)
    return (whole + info.min).to(dtype)
