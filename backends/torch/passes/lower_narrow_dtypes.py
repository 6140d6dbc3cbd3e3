"""Compute narrow dtypes in 32 bits, and round or wrap where PyTorch does.

On a CPU PyTorch computes an operator of float16 or bfloat16 in float32 and rounds its result.
Runtimes lack such operators, or leave the rounding out between two of them. Integers of 8 and 16
bits wrap: ``255 + 1`` is 0; LiteRT's converter rejects unsigned ones, and Core ML computes in 32
bits. Here both are written out.

Core ML has no bfloat16: float32 numbers are rounded to its 8 bits by Veltkamp's splitting (Dekker,
A floating-point technique for extending the available precision, 1971), which takes the nearest; of
two equally near the even one is chosen. coremltools also leaves out casts from integers to floats
and back, which round beyond 2^24: an operation between them keeps both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from edgeserve.backends.torch.passes.fx_utils import (
    dtype_of,
    inline,
    insert,
    is_float,
    overloads,
    replace_each,
)

_ATEN = torch.ops.aten
_HALF = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_WHOLE = dict.fromkeys((torch.uint8, torch.int8, torch.int16), torch.int32)
_CASTS = overloads("to.dtype _to_copy")
_TESTS = overloads("all all.dim all.dims any any.dim any.dims")
_COPIES = _CASTS | overloads("type_as alias clone")
_INTEGER_ARITHMETIC = overloads(
    "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar rsub.Tensor mul.Tensor mul.Scalar neg "
    "square remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar floor_divide "
    "floor_divide.Scalar div.Tensor_mode div.Scalar_mode sum sum.dim_IntList"
)


def lower_narrow_dtypes(module: fx.GraphModule) -> bool:
    """Cast what operators of narrow dtypes read to 32 bits, and their results back."""
    changed = False
    for node in list(module.graph.nodes):
        kinds = _WHOLE if node.target in _INTEGER_ARITHMETIC else {}
        kinds = kinds if node.op != "call_function" or node.target in _COPIES else _HALF | kinds
        read = [each for each in node.all_input_nodes if dtype_of(each) in kinds]
        if read and isinstance(node.meta.get("val"), torch.Tensor):
            _compute_wide(module, node, read)
            changed = True
    return changed


def _compute_wide(module: fx.GraphModule, node: fx.Node, read: list[fx.Node]) -> None:
    kinds, dtype = _HALF | _WHOLE, dtype_of(node)
    for each in read:
        value = each.meta["val"]
        wide = insert(node, _ATEN.to.dtype, each, kinds[value.dtype])
        wide.meta["val"] = value.to(kinds[value.dtype])
        node.replace_input_with(each, wide)
    if dtype in kinds:
        node.meta["val"] = node.meta["val"].to(kinds[dtype])
        _read_after(module, node, lambda x: _narrowed(x, dtype))


def _read_after(module: fx.GraphModule, node: fx.Node, function: Any) -> None:
    """Let all readers of a node read a function of it."""
    readers = list(node.users)
    with node.graph.inserting_after(node):
        place = node.graph.call_function(_ATEN.clone.default, (node,))
    place.meta |= node.meta
    made = inline(module, place, function, (node,))
    for user in readers:
        user.replace_input_with(node, made)
    node.graph.erase_node(place)


def _narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A result of 32 bits in a narrow dtype; integers wrap around."""
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        x = torch.remainder(x.to(torch.int32) - info.min, info.max - info.min + 1) + info.min
    return x.to(dtype)


def lower_casts(module: fx.GraphModule) -> bool:
    """Keep what casts to integers do for Core ML, which has 32 bits; before the other passes."""
    casts = [node for node in module.graph.nodes if node.target in _CASTS]
    tests = [node for node in module.graph.nodes if node.target in _TESTS]
    return any([_lower_cast(module, node) for node in casts] + [_test_truth(n) for n in tests])


def _test_truth(node: fx.Node) -> bool:
    """``any`` or ``all`` of numbers as of truth values."""
    source: Any = node.args[0]
    if dtype_of(source) is torch.bool:
        return False
    node.args = (insert(node, _ATEN.ne.Scalar, source, 0), *node.args[1:])
    return True


def _lower_cast(module: fx.GraphModule, node: fx.Node) -> bool:
    source: Any = node.args[0]
    dtype = dtype_of(node)
    if dtype is torch.bool:
        if dtype_of(source) is torch.bool:
            return False
        # coremltools skips casts on the way: 0.5 is no 0, and the integer that is made of it is.
        node.target, node.args, node.kwargs = _ATEN.ne.Scalar, (source, 0), {}
        return True
    if is_float(node):
        return False
    if source.target in _CASTS and is_float(source) and not is_float(source.args[0]):
        node.args = (insert(node, _ATEN.floor.default, source), *node.args[1:])
        return True
    if dtype not in _WHOLE or is_float(source) or dtype_of(source) in (torch.bool, dtype):
        return False
    _read_after(module, node, lambda x: _narrowed(x, dtype))
    return True


def lower_bfloat16(module: fx.GraphModule) -> bool:
    """Round in float32 where a graph casts to bfloat16."""

    def lower(node: fx.Node) -> fx.Node | None:
        if dtype_of(node) is not torch.bfloat16:
            return None
        wide = node.meta["val"].to(torch.float32)
        made: fx.Node = inline(
            module, node, lambda x: _round_bfloat16(x.to(torch.float32)), (node.args[0],)
        )
        made.meta["val"] = wide
        return made

    return replace_each(module, _CASTS, lower)


def _leading(x: Tensor, bits: int) -> Tensor:
    """The nearest number of so many bits."""
    wide = x * float((1 << (24 - bits)) + 1)
    return wide - (wide - x)


def _round_bfloat16(x: Tensor) -> Tensor:
    """The nearest bfloat16 number of a float32 one, as float32; not below 2^-126."""
    large = x.abs() > 1e30
    scaled = torch.where(large, x * 2.0**-32, x)
    near = _leading(scaled, 8)
    other = near + (scaled - near) * 2
    tie = torch.logical_and(other != near, _leading(other, 8) == other)
    odd = _leading(near, 7) != near
    made = torch.where(torch.logical_and(tie, odd), other, near)
    made = torch.where(large, made * 2.0**32, made)
    return torch.where(x.abs() <= torch.finfo(torch.float32).max, made, x)
