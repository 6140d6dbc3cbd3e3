"""Compute on tensors of more than five axes in five or fewer.

Core ML has tensors of five axes at most. Window attention, patches and grouped scales make tensors
of six to eight on the way, though no operator needs them all at once: axes that an operator treats
alike are merged before it and taken apart behind it, and reshapes that meet vanish.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.rewrites.axes import (
    around,
    expanded,
    grouped,
    permuted,
    reshaped,
    sizes_of,
)
from edgeserve.backends.torch.rewrites.parts import insert, shape_of

__all__ = ["MOST_AXES", "has_many_axes", "merge_axes"]

MOST_AXES = 5

_ATEN = torch.ops.aten


def has_many_axes(module: fx.GraphModule) -> bool:
    """Whether any value has more than `MOST_AXES` axes."""
    return any(map(_is_high, module.graph.nodes))


def merge_axes(module: fx.GraphModule) -> bool:
    """Rewrite operators that read or make such values; all values must have fixed sizes."""
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not (
            _is_high(node) or any(map(_is_high, node.all_input_nodes))
        ):
            continue
        lower = _lowering(node)
        if lower is not None and lower(node):
            module.graph.erase_node(node)
            changed = True
    return _join_reshapes(module) or changed


def _is_high(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(each, torch.Tensor) and each.dim() > MOST_AXES for each in values)


def _lowering(node: fx.Node) -> Callable[[fx.Node], bool] | None:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._schema.name.removeprefix("aten::")
    if name in _TABLE:
        return _TABLE[name]
    return _pointwise if torch.Tag.pointwise in target.tags else None


def _put(node: fx.Node, made: fx.Node) -> bool:
    """Let ``made`` take a node's place, in the node's sizes."""
    final = reshaped(node, made, sizes_of(node))
    final.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(final)
    return True


def _view(node: fx.Node) -> bool:
    return _put(node, node.args[0])  # type: ignore[arg-type]


def _permuted(node: fx.Node) -> bool:
    x: Any = node.args[0]
    rank = len(sizes_of(x))
    order = list(range(rank))
    if node.target in (_ATEN.transpose.int, _ATEN.transpose_copy.int):
        one, two = (int(axis) % rank for axis in node.args[1:3])  # type: ignore[arg-type]
        order[one], order[two] = two, one
    else:
        order = list(node.args[1])  # type: ignore[arg-type]
    return _put(node, permuted(node, x, order, MOST_AXES))


def _expand(node: fx.Node) -> bool:
    return _put(node, expanded(node, node.args[0], sizes_of(node)))  # type: ignore[arg-type]


def _pointwise(node: fx.Node) -> bool:
    """Axes along which the same operands are stretched become one."""
    out = sizes_of(node)
    reads = [read for read in node.all_input_nodes if shape_of(read) is not None]
    full = {read: (1,) * (len(out) - len(sizes_of(read))) + sizes_of(read) for read in reads}
    real = [axis for axis in range(len(out)) if out[axis] != 1]
    runs = grouped([tuple(full[read][axis] != 1 for read in reads) for axis in real])
    groups = [[real[place] for place in places] for _, places in runs]
    if len(groups) > MOST_AXES:
        low = {read: reshaped(node, expanded(node, read, out), [-1]) for read in reads}
    else:
        low = {
            read: reshaped(node, read, [math.prod(full[read][a] for a in axes) for axes in groups])
            for read in reads
        }
    made = _called(node, lambda arg: low.get(arg, arg))
    return _put(node, made)


def _called(node: fx.Node, change: Callable[[fx.Node], Any], **named: Any) -> fx.Node:
    """The same operator on other operands; ``named`` replaces arguments by name."""
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    args = list(fx.map_arg(node.args, change))
    kwargs = dict(fx.map_arg(node.kwargs, change))
    for name, value in named.items():
        place = names.index(name)
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value
    made = insert(node, node.target, *args)
    made.kwargs = kwargs
    return made


def _has(node: fx.Node, name: str) -> bool:
    return name in [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]


def _argument(node: fx.Node, name: str, default: Any = None) -> Any:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    place = names.index(name)
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def _reduce(node: fx.Node) -> bool:
    """Reduced axes that are neighbours become one, and so do kept ones."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    dims = _argument(node, "dim") if _has(node, "dim") else None
    if dims in (None, []):
        return _put(node, _called(node, lambda arg: reshaped(node, x, [-1]) if arg is x else arg))
    listed = isinstance(dims, list | tuple)
    gone = {int(axis) % len(sizes) for axis in (dims if listed else [dims])}
    runs = grouped([axis in gone for axis in range(len(sizes))])
    if len(runs) > MOST_AXES:
        return False
    low = reshaped(node, x, [math.prod(sizes[axis] for axis in axes) for _, axes in runs])
    places = [place for place, (pattern, _) in enumerate(runs) if pattern]
    made = _called(node, lambda arg: low if arg is x else arg, dim=places if listed else places[0])
    return _put(node, made)


def _along(name: str = "dim", default: int = 0) -> Callable[[fx.Node], bool]:
    """An operator along one axis: three axes are enough."""

    def lower(node: fx.Node) -> bool:
        x: Any = node.args[0]
        axis = _argument(node, name, default) if _has(node, name) else None
        if axis is None:  # over all elements
            return _reduce(node)
        low = reshaped(node, x, around(sizes_of(x), int(axis)))
        made = _called(node, lambda arg: low if arg is x else arg, **{name: 1})
        return _handed_on(node, made)

    return lower


def _handed_on(node: fx.Node, made: fx.Node) -> bool:
    """Put ``made`` in a node's place, also where it has several results."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return _put(node, made)
    for user in list(node.users):
        if user.target is not operator.getitem:
            return False
        with user.graph.inserting_before(user):
            part = user.graph.call_function(operator.getitem, (made, user.args[1]))
        part.meta = {key: value for key, value in user.meta.items() if key != "val"}
        _put(user, part)
        user.graph.erase_node(user)
    return True


def _cat(node: fx.Node) -> bool:
    parts: Any = node.args[0]
    axis = int(_argument(node, "dim", 0))
    low = [reshaped(node, part, around(sizes_of(part), axis)) for part in parts]
    return _put(node, insert(node, _ATEN.cat.default, low, 1))


def _pad(node: fx.Node) -> bool:
    made: Any = node.args[0]
    widths: Any = node.args[1]
    value = _argument(node, "value", 0)
    now = list(sizes_of(made))
    for place in range(len(widths) // 2):
        before, behind = widths[2 * place : 2 * place + 2]
        if before or behind:
            axis = len(now) - 1 - place
            low = reshaped(node, made, around(now, axis))
            made = insert(node, node.target, low, [0, 0, before, behind], value)
            now[axis] += before + behind
            made.meta["val"] = node.meta["val"].new_empty(around(now, axis), device="meta")
    return _put(node, made)


def _full(node: fx.Node) -> bool:
    made = insert(node, node.target, [math.prod(sizes_of(node))], *node.args[1:])
    made.kwargs = dict(node.kwargs)
    return _put(node, made)


def _last_axes(node: fx.Node) -> bool:
    """Linear layers and normalisation over last axes: all axes before them become one."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    kept = len(node.args[1]) if isinstance(node.args[1], list | tuple) else 1
    low = reshaped(node, x, [math.prod(sizes[:-kept]), *sizes[-kept:]])
    return _handed_on(node, _called(node, lambda arg: low if arg is x else arg))


def _matmul(node: fx.Node) -> bool:
    batch = sizes_of(node)[:-2]
    low = []
    for operand in node.args[:2]:
        sizes = sizes_of(operand)
        if len(sizes) < 2:
            return False
        whole = expanded(node, operand, (*batch, *sizes[-2:]))  # type: ignore[arg-type]
        low.append(reshaped(node, whole, [math.prod(batch), *sizes[-2:]]))
    return _put(node, insert(node, _ATEN.bmm.default, *low))


_VIEWS = (
    "view",
    "reshape",
    "_unsafe_view",
    "unsqueeze",
    "squeeze",
    "clone",
    "contiguous",
    "flatten",
    "unflatten",
    "alias",
    "detach",
    "view_copy",
    "squeeze_copy",
    "unsqueeze_copy",
    "lift_fresh_copy",
)
_REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "amin",
    "any",
    "all",
    "var",
    "std",
    "logsumexp",
    "linalg_vector_norm",
)
_ALONG_ONE = (
    "_softmax",
    "_log_softmax",
    "softmax",
    "log_softmax",
    "select",
    "slice",
    "index_select",
    "max",
    "min",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "unbind",
    "split",
    "split_with_sizes",
    "prod",
    "select_copy",
    "slice_copy",
    "unbind_copy",
    "split_copy",
    "split_with_sizes_copy",
)

_TABLE: dict[str, Callable[[fx.Node], bool]] = {
    **dict.fromkeys(_VIEWS, _view),
    **dict.fromkeys(("permute", "permute_copy", "transpose", "transpose_copy"), _permuted),
    **dict.fromkeys(("expand", "expand_copy", "broadcast_to"), _expand),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_ALONG_ONE, _along()),
    **dict.fromkeys(("_to_copy", "to"), _pointwise),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "linear", "rms_norm"), _last_axes),
    "cat": _cat,
    "constant_pad_nd": _pad,
    "full": _full,
    "matmul": _matmul,
}


def _join_reshapes(module: fx.GraphModule) -> bool:
    """Reshape the source of a reshape instead: what lies between them may vanish."""
    joined = False
    for node in module.graph.find_nodes(op="call_function", target=_ATEN.reshape.default):
        source: Any = node.args[0]
        while isinstance(source, fx.Node) and source.target is _ATEN.reshape.default:
            source, joined = source.args[0], True
        node.args = (source, list(shape_of(node) or node.args[1]))
    return joined
