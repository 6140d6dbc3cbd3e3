"""Canonicalize a graph: no assertions, no no-ops, operators and outputs that all formats know.

Assertions are removed: they held when the module was exported. So are aliases, detachments and
dropout outside training, which return their input unchanged.

``x.new_zeros(s)`` becomes ``full`` with the dtype of ``x``; ``a & b`` on tensors becomes
``bitwise_and``, and ``logical_and`` for booleans; torch's own test whether all of a tensor is true
becomes ``all``. PyTorch's ``ReLU6`` is a ``hardtanh`` with two numbers. Converters know ``relu6``
as an activation, which they fuse with the layer before it, but do not recognize the clip. A clip of
floats with integer bounds makes one of them fail. Runtimes know ``relu`` for floats only: for
integers it becomes a clip. coremltools writes a whole number into floats as an integer.

``contiguous()`` of a contiguous tensor disappears when a program is traced again, say with
attention decomposed. The views after it then see other strides and are illegal. A copy with a
memory format always remains, and a reshape is valid for any strides.

Outputs get a dtype of the format, and an operator of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import (
    arguments_of,
    dtype_of,
    insert,
    is_float,
    kept_meta,
    overloads,
    replace_each,
    shape_of,
)

#: Starts of the names of operators that only check; ``_guards_fn`` is a module that does.
_CHECKS = ("aten._assert", "aten._functional_assert", "aten.sym_constrain", "_guards_fn")


def remove_asserts(module: fx.GraphModule) -> bool:
    """Remove assertions and size constraints, and with them what was computed only for them."""
    checks = [node for node in module.graph.nodes if str(node.target).startswith(_CHECKS)]
    for node in checks:
        if node.users:  # a functional assertion hands a token on to the next one
            node.replace_all_uses_with(node.args[-1])
        module.graph.erase_node(node)
    return bool(checks)


_ATEN = torch.ops.aten
_NOOPS = overloads("alias detach detach_ lift_fresh lift_fresh_copy positive")
_DROPOUT = overloads("alpha_dropout dropout feature_alpha_dropout feature_dropout")

_SQUEEZES = overloads("squeeze.dim squeeze.dims")


def _squeezed(node: fx.Node) -> Any:
    """Without the axes of other sizes, which PyTorch leaves and formats reject."""
    x, given = arguments_of(node).values()
    sizes = shape_of(x)
    if sizes is None or not sizes:
        return None
    wanted = [given] if isinstance(given, int) else list(given)
    kept = [axis for axis in wanted if sizes[axis] == 1]
    if not kept:
        return x
    return None if kept == wanted else insert(node, _ATEN.squeeze.dims, x, kept)


def remove_noops(module: fx.GraphModule) -> bool:
    """Remove what returns its input unchanged; readers take the input instead.

    That are aliases, detachments, dropout outside training, and ``squeeze`` of no axis of size 1.
    """
    idle = replace_each(module, _NOOPS, lambda node: node.args[0])
    idle |= replace_each(module, _SQUEEZES, _squeezed)
    off = replace_each(
        module, _DROPOUT, lambda node: node.args[0] if node.args[2] is False else None
    )
    return idle or off


#: Reductions of all axes, and the same with a list of axes.
_OF_ALL_AXES: dict[Any, Any] = {
    _ATEN.amax.default: _ATEN.amax.default,
    _ATEN.amin.default: _ATEN.amin.default,
    _ATEN.linalg_vector_norm.default: _ATEN.linalg_vector_norm.default,
    _ATEN.max.default: _ATEN.amax.default,
    _ATEN.mean.default: _ATEN.mean.dim,
    _ATEN.min.default: _ATEN.amin.default,
    _ATEN.std.correction: _ATEN.std.correction,
    _ATEN.std.default: _ATEN.std.dim,
    _ATEN.sum.default: _ATEN.sum.dim_IntList,
    _ATEN.sum.dim_IntList: _ATEN.sum.dim_IntList,
    _ATEN.var.correction: _ATEN.var.correction,
    _ATEN.var.default: _ATEN.var.dim,
}


def list_all_axes(module: fx.GraphModule) -> bool:
    """Name what reductions leave out: their axes where they take all, and a correction of 1.

    A pass of coremltools asks for the axes, and its variance takes no correction for 0.
    """
    found = False
    for node in [node for node in module.graph.nodes if node.target in _OF_ALL_AXES]:
        rank, known = len(shape_of(node.args[0]) or ()), arguments_of(node)
        uncorrected = "correction" in known and known["correction"] is None
        if not rank or (known.get("dim") and not uncorrected):
            continue
        known["dim"] = known.get("dim") or list(range(rank))
        known |= {"correction": 1} if uncorrected else {}
        node.target = _OF_ALL_AXES[node.target]
        schema = node.target._schema.arguments
        places = [each.name for each in schema if not each.kwarg_only]  # converters read by place
        node.args = (node.args[0], *(known.get(name, False) for name in places[1:]))
        node.kwargs = {each.name: known.get(each.name) for each in schema if each.kwarg_only}
        found = True
    return found


#: Operators of the same arguments under a name that converters know.
_ALIASES: dict[Any, Any] = {
    _ATEN.__and__.Tensor: _ATEN.bitwise_and.Tensor,
    _ATEN.__and__.Scalar: _ATEN.bitwise_and.Scalar,
    _ATEN.__or__.Tensor: _ATEN.bitwise_or.Tensor,
    _ATEN.__or__.Scalar: _ATEN.bitwise_or.Scalar,
    _ATEN.__xor__.Tensor: _ATEN.bitwise_xor.Tensor,
    _ATEN.__xor__.Scalar: _ATEN.bitwise_xor.Scalar,
    _ATEN.__lshift__.Tensor: _ATEN.bitwise_left_shift.Tensor,
    _ATEN.__lshift__.Scalar: _ATEN.bitwise_left_shift.Tensor_Scalar,
    _ATEN.__rshift__.Tensor: _ATEN.bitwise_right_shift.Tensor,
    _ATEN.__rshift__.Scalar: _ATEN.bitwise_right_shift.Tensor_Scalar,
    _ATEN._is_all_true.default: _ATEN.all.default,
    _ATEN._is_any_true.default: _ATEN.any.default,
}

#: Logical operators that replace bitwise ones on booleans.
_LOGICAL: dict[Any, Any] = {
    _ATEN.bitwise_and.Tensor: _ATEN.logical_and.default,
    _ATEN.bitwise_or.Tensor: _ATEN.logical_or.default,
    _ATEN.bitwise_xor.Tensor: _ATEN.logical_xor.default,
    _ATEN.bitwise_not.default: _ATEN.logical_not.default,
}

#: The fill value of ``new_...``; None: its own argument.
_NEW: dict[Any, float | None] = {
    _ATEN.new_zeros.default: 0,
    _ATEN.new_ones.default: 1,
    _ATEN.new_full.default: None,
    _ATEN.new_empty.default: 0,
}


def canonicalize_ops(module: fx.GraphModule) -> bool:
    """Replace aliases of operators; the values' dtypes must be known (``meta["val"]``)."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target in _ALIASES:
            node.target, changed = _ALIASES[node.target], True
        if node.target is _ATEN.relu.default and _is_integer(node):
            node.target, node.args, changed = _ATEN.clamp_min.default, (node.args[0], 0), True
        elif node.target is _ATEN.scatter.value and is_float(node) and type(node.args[3]) is int:
            node.args, changed = (*node.args[:3], float(node.args[3])), True
        elif node.target in _LOGICAL and all(map(_is_bool, (node, *node.all_input_nodes))):
            node.target, changed = _LOGICAL[node.target], True
        elif node.target in _NEW and isinstance(node.meta.get("val"), torch.Tensor):
            _fill(node, _NEW[node.target])
            changed = True
    return changed


def _is_bool(node: fx.Node) -> bool:
    return dtype_of(node) is torch.bool


def _is_integer(node: fx.Node) -> bool:
    return dtype_of(node) in (torch.int32, torch.int64)


def _fill(node: fx.Node, number: float | None) -> None:
    """Replace ``new_...(x, size[, number])`` by ``full(size, number)``."""
    value = node.meta["val"]
    filler: Any = node.args[2] if number is None else number
    if value.dtype is torch.bool and isinstance(filler, int | float):
        filler = bool(filler)
    made = insert(node, _ATEN.full.default, node.args[1], filler, dtype=value.dtype)
    made.meta = kept_meta(node)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


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


def canonicalize_relu6(module: fx.GraphModule) -> bool:
    """Replace ``hardtanh(x, 0, 6)`` by ``relu6(x)``; core ATen turns it back again."""
    clips = [
        node
        for node in module.graph.find_nodes(op="call_function", target=_ATEN.hardtanh.default)
        if tuple(node.args[1:]) == (0.0, 6.0)
    ]
    for node in clips:
        node.target, node.args = _ATEN.relu6.default, node.args[:1]
    return bool(clips)


def canonicalize_clip_bounds(module: fx.GraphModule) -> bool:
    """Write both bounds of ``hardtanh``, as floats where its input is floating point."""
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=_ATEN.hardtanh.default):
        x, *bounds = arguments_of(node).values()
        wanted = (x, *(map(float, bounds) if is_float(x) else bounds))
        changed = changed or tuple(map(repr, node.args)) != tuple(map(repr, wanted))
        node.args, node.kwargs = wanted, {}
    return changed


#: The replacements of output dtypes where only float32 and int32 are allowed.
_OUTPUT_DTYPES = dict.fromkeys(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int64), torch.int32
) | dict.fromkeys((torch.float64, torch.float16, torch.bfloat16), torch.float32)


#: Operators that return their operand where its shape and dtype are asked for.
_HANDED_ON = overloads(
    "contiguous expand flatten.using_ints reshape slice.Tensor squeeze.dim squeeze.dims to.dtype "
    "to.dtype_layout unflatten.int view"
)


def outputs_need_sizes(module: fx.GraphModule) -> bool:
    """Whether `normalize_outputs` needs fixed sizes: a value would be an output twice."""
    given: Any = module.graph.output_node().args[0]
    own = [_viewed(node) for node in given if node.meta["val"].dtype not in _OUTPUT_DTYPES]
    return len(set(own)) < len(own) or any(node.op != "call_function" for node in own)


def normalize_outputs(module: fx.GraphModule) -> bool:
    """Make every output float32 or int32, and the only result of its operator.

    An input, a constant or an earlier output returned unchanged would be one value with two names,
    which some converters cannot write. For such graphs (`outputs_need_sizes`) values must have
    fixed sizes (`with_sizes`).
    """
    output = module.graph.output_node()
    given: Any = output.args[0]
    with module.graph.inserting_before(output):
        settled = [
            _normalized_output(module.graph, node, given[:place])
            for place, node in enumerate(given)
        ]
    output.args = (tuple(settled),)
    return settled != list(given)


def _viewed(node: fx.Node) -> fx.Node:
    """The node itself, or what it hands on unchanged, which converters find out and drop."""
    while node.target in _HANDED_ON:
        source: Any = node.args[0]
        same = shape_of(node) is not None and shape_of(node) == shape_of(source)
        if not same or node.meta["val"].dtype != source.meta["val"].dtype:
            break
        node = source
    return node


def _normalized_output(graph: fx.Graph, node: fx.Node, before: Sequence[fx.Node]) -> fx.Node:
    value, made = node.meta["val"], node
    if value.dtype in _OUTPUT_DTYPES:
        made = graph.call_function(_ATEN.to.dtype, (node, _OUTPUT_DTYPES[value.dtype]))
    same = _viewed(node) in map(_viewed, before)
    if same or (made is node and _viewed(node).op != "call_function"):
        made = graph.call_function(_ATEN.reshape.default, (made, list(value.shape)))
    if made is not node:
        made.meta["stack_trace"] = node.meta.get("stack_trace")
    return made
