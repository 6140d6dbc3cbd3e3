"""Compute on tensors of many axes in fewer.

Core ML has tensors of five axes at most, and many kernels of LiteRT take four: some of them write
beyond their memory at five. Window attention, patches and grouped scales make
tensors of six to eight on the way, though no operator needs them all at once: axes that an
operator treats alike are merged before it and split behind it, and reshapes that meet vanish.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.axis_moves import (
    around,
    call_again,
    expanded,
    grouped,
    hand_on,
    permuted,
    reshaped,
    sizes_of,
    substitute,
)
from edgeserve.backends.torch.passes.fx_utils import arguments_of, insert, shape_of

_ATEN = torch.ops.aten


#: What Core ML takes, and what every kernel of LiteRT takes.
MAX_AXES, FOUR_AXES = 5, 4


def has_many_axes(module: fx.GraphModule, most: int = MAX_AXES) -> bool:
    """Whether any value has more than ``most`` axes."""
    return any(_is_high(node, most) for node in module.graph.nodes)


def merge_axes(module: fx.GraphModule, most: int = MAX_AXES) -> bool:
    """Rewrite operators that read or make such values; all values must have fixed sizes.

    Args:
        module: The graph's.
        most: The number of axes that a value may have; four or more.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not any(
            _is_high(each, most) for each in (node, *node.all_input_nodes)
        ):
            continue
        lower = _lowering(node)
        if lower is not None and lower(node, most):
            module.graph.erase_node(node)
            changed = True
    return _join_reshapes(module) or changed


def merge_axes_to_four(module: fx.GraphModule) -> bool:
    """The same for values of at most `FOUR_AXES` axes."""
    return merge_axes(module, FOUR_AXES)


def _is_high(node: fx.Node, most: int) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(each, torch.Tensor) and each.dim() > most for each in values)


def _lowering(node: fx.Node) -> _Lowering | None:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._schema.name.removeprefix("aten::")
    if name in _TABLE:
        return _TABLE[name]
    return _pointwise if torch.Tag.pointwise in target.tags else None


def _permute_op(node: fx.Node, most: int) -> bool:
    x: Any = node.args[0]
    rank = len(sizes_of(x))
    order = list(range(rank))
    if node.target in (_ATEN.transpose.int, _ATEN.transpose_copy.int):
        one, two = (int(axis) % rank for axis in node.args[1:3])  # type: ignore[arg-type]
        order[one], order[two] = two, one
    else:
        order = list(node.args[1])  # type: ignore[arg-type]
    return substitute(node, permuted(node, x, order, most))


def _pointwise(node: fx.Node, most: int) -> bool:
    """Axes along which the same operands are stretched become one."""
    out = sizes_of(node)
    reads = [read for read in node.all_input_nodes if shape_of(read)]  # one number stays one
    full = {read: (1,) * (len(out) - len(sizes_of(read))) + sizes_of(read) for read in reads}
    real = [axis for axis in range(len(out)) if out[axis] != 1]
    runs = grouped([tuple(full[read][axis] != 1 for read in reads) for axis in real])
    groups = [[real[place] for place in places] for _, places in runs] or [[]]
    if len(groups) > most:
        low = {read: reshaped(node, expanded(node, read, out), [-1]) for read in reads}
    else:
        low = {
            read: reshaped(node, read, [math.prod(full[read][a] for a in axes) for axes in groups])
            for read in reads
        }
    return substitute(node, call_again(node, low))


def _reduce(node: fx.Node, most: int) -> bool:
    """Reduced axes that are neighbours become one, and so do kept ones."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    dims = arguments_of(node).get("dim")
    if dims in (None, []):
        return hand_on(node, call_again(node, {x: reshaped(node, x, [-1])}))
    listed = isinstance(dims, list | tuple)
    gone = {int(axis) % len(sizes) for axis in (dims if listed else [dims])}
    runs = grouped([axis in gone for axis in range(len(sizes))])
    if len(runs) > most:
        return False
    low = reshaped(node, x, [math.prod(sizes[axis] for axis in axes) for _, axes in runs])
    places = [place for place, (pattern, _) in enumerate(runs) if pattern]
    return hand_on(node, call_again(node, {x: low}, dim=places if listed else places[0]))


def _along_one(node: fx.Node, most: int) -> bool:
    """An operator along one axis: three axes are enough."""
    x: Any = node.args[0]
    name = "dimension" if node.target is _ATEN.unfold.default else "dim"
    axis = arguments_of(node).get(name)
    if axis is None:  # over all elements
        return _reduce(node, most)
    low = reshaped(node, x, around(sizes_of(x), int(axis)))
    return hand_on(node, call_again(node, {x: low}, **{name: 1}))


def _cat(node: fx.Node, most: int) -> bool:
    parts: Any = node.args[0]
    axis = int(arguments_of(node)["dim"])
    low = [reshaped(node, part, around(sizes_of(part), axis)) for part in parts]
    return substitute(node, insert(node, _ATEN.cat.default, low, 1))


def _pad(node: fx.Node, most: int) -> bool:
    made: Any = node.args[0]
    widths: Any = node.args[1]
    value = arguments_of(node).get("value")
    now = list(sizes_of(made))
    for place in range(len(widths) // 2):
        before, behind = widths[2 * place : 2 * place + 2]
        if before or behind:
            axis = len(now) - 1 - place
            low = reshaped(node, made, around(now, axis))
            made = insert(node, node.target, low, [0, 0, before, behind], value)
            now[axis] += before + behind
            made.meta["val"] = node.meta["val"].new_empty(around(now, axis), device="meta")
    return substitute(node, made)


def _full(node: fx.Node, most: int) -> bool:
    return substitute(node, call_again(node, size=[math.prod(sizes_of(node))]))


def _last_axes(node: fx.Node, most: int) -> bool:
    """Linear layers and normalisation over last axes: all axes before them become one."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    kept = len(node.args[1]) if isinstance(node.args[1], list | tuple) else 1
    low = reshaped(node, x, [math.prod(sizes[:-kept]), *sizes[-kept:]])
    return hand_on(node, call_again(node, {x: low}))


def _gather(node: fx.Node, most: int) -> bool:
    """Only where the index is as large as the values along all other axes."""
    x, axis, index = (arguments_of(node)[name] for name in ("self", "dim", "index"))
    (before, _, behind), (front, _, back) = around(sizes_of(x), axis), around(sizes_of(index), axis)
    if (before, behind) != (front, back):
        return False
    low = {each: reshaped(node, each, around(sizes_of(each), axis)) for each in (x, index)}
    return substitute(node, call_again(node, low, dim=1))


def _flip(node: fx.Node, most: int) -> bool:
    made: Any = node.args[0]
    sizes = sizes_of(node)
    for axis in arguments_of(node)["dims"]:
        low = reshaped(node, made, around(sizes, axis))
        made = insert(node, _ATEN.flip.default, low, [1])
        made.meta["val"] = low.meta["val"]
    return substitute(node, made)


def _repeat(node: fx.Node, most: int) -> bool:
    made: Any = node.args[0]
    given: Any = node.args[1]
    rank = len(sizes_of(node))
    now = [1] * (rank - len(sizes_of(made))) + list(sizes_of(made))
    for axis, count in enumerate([1] * (rank - len(given)) + list(given)):
        if count != 1:
            front, size, back = around(now, axis)
            low = reshaped(node, made, [front, 1, size * back])
            made = insert(node, _ATEN.repeat.default, low, [1, count, 1])
            made.meta["val"] = low.meta["val"].new_empty([front, count, size * back])
            now[axis] *= count
    return substitute(node, made)


def _matmul(node: fx.Node, most: int) -> bool:
    batch = sizes_of(node)[:-2]
    if len(sizes_of(node.args[1])) == 2:  # one matrix for all: the rows of all go through it
        return _last_axes(node, most)
    low = []
    for operand in node.args[:2]:
        sizes = sizes_of(operand)
        if len(sizes) < 2:
            return False
        whole = expanded(node, operand, (*batch, *sizes[-2:]))
        low.append(reshaped(node, whole, [math.prod(batch), *sizes[-2:]]))
    return substitute(node, insert(node, _ATEN.bmm.default, *low))


_VIEWS = tuple(
    "view reshape _unsafe_view unsqueeze squeeze clone contiguous flatten unflatten alias "
    "detach view_copy squeeze_copy unsqueeze_copy lift_fresh_copy".split()
)
_REDUCTIONS = tuple(
    "sum mean amax amin any all var std var_mean std_mean logsumexp linalg_vector_norm norm "
    "nansum count_nonzero".split()
)
_ALONG_ONE = tuple(
    "_softmax _log_softmax softmax log_softmax select slice index_select max min argmax "
    "argmin cumsum cumprod unbind split split_with_sizes prod select_copy slice_copy "
    "unbind_copy split_copy split_with_sizes_copy narrow chunk topk sort argsort median kthvalue "
    "cummax cummin logcumsumexp unfold repeat_interleave aminmax".split()
)

#: Rewrites one operator in values of at most so many axes; False: it cannot.
_Lowering = Callable[[fx.Node, int], bool]

_TABLE: dict[str, _Lowering] = {
    **dict.fromkeys(_VIEWS, lambda node, most: substitute(node, node.args[0])),
    **dict.fromkeys(("permute", "permute_copy", "transpose", "transpose_copy"), _permute_op),
    **dict.fromkeys(
        ("expand", "expand_copy", "broadcast_to"),
        lambda node, most: substitute(node, expanded(node, node.args[0], sizes_of(node))),
    ),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_ALONG_ONE, _along_one),
    **dict.fromkeys(("_to_copy", "to"), _pointwise),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "linear", "rms_norm"), _last_axes),
    "cat": _cat,
    "flip": _flip,
    "gather": _gather,
    "constant_pad_nd": _pad,
    "full": lambda node, most: substitute(node, call_again(node, size=[math.prod(sizes_of(node))])),
    "matmul": _matmul,
    **dict.fromkeys(("repeat", "tile"), _repeat),
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
