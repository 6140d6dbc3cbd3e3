"""Compute on tensors of more than five axes in five or fewer.

Core ML has tensors of five axes at most. Window attention, patches and grouped scales make
tensors of six to eight on the way, though no operator needs them all at once: axes that an
operator treats alike are merged before it and split behind it, and reshapes that meet vanish.
The helpers reshape, permute and expand the same numbers a few axes at a time.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import arguments_of, insert, shape_of

_ATEN = torch.ops.aten


def sizes_of(node: Any) -> tuple[int, ...]:
    """Sizes of a node's tensor, which must be fixed."""
    sizes = shape_of(node)
    if sizes is None:
        raise ValueError(f"{node} has no fixed sizes")
    return sizes


def reshaped(at: fx.Node, x: fx.Node, sizes: Sequence[int]) -> fx.Node:
    """``x`` in other sizes, by an operator before ``at``; its value is known again."""
    if list(sizes) == [-1]:
        sizes = [math.prod(sizes_of(x))]
    made = insert(at, _ATEN.reshape.default, x, list(sizes))
    if isinstance(x.meta.get("val"), torch.Tensor):
        made.meta["val"] = x.meta["val"].new_empty(list(sizes), device="meta")
    return made


def around(sizes: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Sizes before an axis, of it, and behind it, each as one number."""
    axis %= max(len(sizes), 1)
    return math.prod(sizes[:axis]), sizes[axis], math.prod(sizes[axis + 1 :])


def grouped(patterns: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Runs of neighbouring axes of the same pattern: the pattern and the axes' numbers."""
    runs = itertools.groupby(range(len(patterns)), key=lambda axis: patterns[axis])
    return [(pattern, list(axes)) for pattern, axes in runs]


def expanded(at: fx.Node, x: Any, sizes: Sequence[int]) -> fx.Node:
    """``x`` expanded to sizes, one axis after the other, in three axes each time."""
    before = sizes_of(x)
    now = [1] * (len(sizes) - len(before)) + list(before)
    made = x
    for axis, size in enumerate(sizes):
        if now[axis] != size:
            front, _, back = around(now, axis)
            low = reshaped(at, made, [front, 1, back])
            made = insert(at, _ATEN.expand.default, low, [front, size, back])
            made.meta["val"] = x.meta["val"].new_empty([front, size, back], device="meta")
            now[axis] = size
    return reshaped(at, made, sizes)


def _permuted(at: fx.Node, x: fx.Node, order: Sequence[int], most: int) -> fx.Node:
    """``x`` with its axes in another order, by permutations of at most ``most`` axes (4 or more).

    Axes of size 1 play no part, and axes that stay neighbours count as one. What is still too much
    is done in steps, each of which lets two neighbouring blocks change places.
    """
    sizes = sizes_of(x)
    rank = len(sizes)
    order = [axis % rank for axis in order]
    blocks = _blocks([axis for axis in order if sizes[axis] != 1], sizes)
    now, wanted = sorted(blocks), blocks
    lengths = {block: math.prod(sizes[axis] for axis in block) for block in blocks}
    made = x
    if len(blocks) <= most:
        made = reshaped(at, made, [lengths[block] for block in now])
        made = _permute(at, made, [now.index(block) for block in wanted])
    else:
        for first, last in _swaps(now, wanted):
            parts = (now[:first], now[first:last], now[last : last + 1], now[last + 1 :])
            made = reshaped(at, made, [math.prod(lengths[b] for b in part) for part in parts])
            made = _permute(at, made, [0, 2, 1, 3])
            now[first : last + 1] = [*parts[2], *parts[1]]
    return reshaped(at, made, [sizes[axis] for axis in order])


def _permute(at: fx.Node, x: fx.Node, order: list[int]) -> fx.Node:
    made = insert(at, _ATEN.permute.default, x, order)
    sizes = sizes_of(x)
    made.meta["val"] = x.meta["val"].new_empty([sizes[axis] for axis in order], device="meta")
    return made


def _blocks(order: list[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes that follow each other before and after as one block; of those that are not 1."""
    real = [axis for axis in range(len(sizes)) if sizes[axis] != 1]
    follower = dict(itertools.pairwise(real))
    blocks: list[tuple[int, ...]] = []
    for axis in order:
        if blocks and follower.get(blocks[-1][-1]) == axis:
            blocks[-1] = (*blocks[-1], axis)
        else:
            blocks.append((axis,))
    return blocks


def _swaps(now: list[tuple[int, ...]], wanted: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Steps that turn one order into the other: the block at ``last`` moves to ``first``.

    The caller carries each step out on ``now`` before it asks for the next.
    """
    for first, block in enumerate(wanted):
        last = now.index(block)
        if last != first:
            yield first, last


MAX_AXES = 5


def has_many_axes(module: fx.GraphModule) -> bool:
    """Whether any value has more than `MAX_AXES` axes."""
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
    return any(isinstance(each, torch.Tensor) and each.dim() > MAX_AXES for each in values)


def _lowering(node: fx.Node) -> Callable[[fx.Node], bool] | None:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._schema.name.removeprefix("aten::")
    if name in _TABLE:
        return _TABLE[name]
    return _pointwise if torch.Tag.pointwise in target.tags else None


def _substitute(node: fx.Node, made: Any) -> bool:
    """Let ``made`` take a node's place, in the node's sizes."""
    final = reshaped(node, made, sizes_of(node))
    final.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(final)
    return True


def _permute_op(node: fx.Node) -> bool:
    x: Any = node.args[0]
    rank = len(sizes_of(x))
    order = list(range(rank))
    if node.target in (_ATEN.transpose.int, _ATEN.transpose_copy.int):
        one, two = (int(axis) % rank for axis in node.args[1:3])  # type: ignore[arg-type]
        order[one], order[two] = two, one
    else:
        order = list(node.args[1])  # type: ignore[arg-type]
    return _substitute(node, _permuted(node, x, order, MAX_AXES))


def _pointwise(node: fx.Node) -> bool:
    """Axes along which the same operands are stretched become one."""
    out = sizes_of(node)
    reads = [read for read in node.all_input_nodes if shape_of(read) is not None]
    full = {read: (1,) * (len(out) - len(sizes_of(read))) + sizes_of(read) for read in reads}
    real = [axis for axis in range(len(out)) if out[axis] != 1]
    runs = grouped([tuple(full[read][axis] != 1 for read in reads) for axis in real])
    groups = [[real[place] for place in places] for _, places in runs]
    if len(groups) > MAX_AXES:
        low = {read: reshaped(node, expanded(node, read, out), [-1]) for read in reads}
    else:
        low = {
            read: reshaped(node, read, [math.prod(full[read][a] for a in axes) for axes in groups])
            for read in reads
        }
    return _substitute(node, _called(node, low))


def _called(
    node: fx.Node, operands: Mapping[fx.Node, fx.Node] = MappingProxyType({}), **named: Any
) -> fx.Node:
    """The same operator on other operands; ``named`` replaces arguments by name."""
    names = list(arguments_of(node))
    args = list(fx.map_arg(node.args, lambda each: operands.get(each, each)))
    kwargs = dict(fx.map_arg(node.kwargs, lambda each: operands.get(each, each)))
    for name, value in named.items():
        place = names.index(name)
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value
    return insert(node, node.target, *args, **kwargs)


def _reduce(node: fx.Node) -> bool:
    """Reduced axes that are neighbours become one, and so do kept ones."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    dims = arguments_of(node).get("dim")
    if dims in (None, []):
        return _substitute(node, _called(node, {x: reshaped(node, x, [-1])}))
    listed = isinstance(dims, list | tuple)
    gone = {int(axis) % len(sizes) for axis in (dims if listed else [dims])}
    runs = grouped([axis in gone for axis in range(len(sizes))])
    if len(runs) > MAX_AXES:
        return False
    low = reshaped(node, x, [math.prod(sizes[axis] for axis in axes) for _, axes in runs])
    places = [place for place, (pattern, _) in enumerate(runs) if pattern]
    return _substitute(node, _called(node, {x: low}, dim=places if listed else places[0]))


def _along_one(node: fx.Node) -> bool:
    """An operator along one axis: three axes are enough."""
    x: Any = node.args[0]
    axis = arguments_of(node).get("dim")
    if axis is None:  # over all elements
        return _reduce(node)
    low = reshaped(node, x, around(sizes_of(x), int(axis)))
    return _handed_on(node, _called(node, {x: low}, dim=1))


def _handed_on(node: fx.Node, made: fx.Node) -> bool:
    """Put ``made`` in a node's place, also where it has several results."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return _substitute(node, made)
    for user in list(node.users):
        if user.target is not operator.getitem:
            return False
        with user.graph.inserting_before(user):
            part = user.graph.call_function(operator.getitem, (made, user.args[1]))
        part.meta = {key: value for key, value in user.meta.items() if key != "val"}
        _substitute(user, part)
        user.graph.erase_node(user)
    return True


def _cat(node: fx.Node) -> bool:
    parts: Any = node.args[0]
    axis = int(arguments_of(node)["dim"])
    low = [reshaped(node, part, around(sizes_of(part), axis)) for part in parts]
    return _substitute(node, insert(node, _ATEN.cat.default, low, 1))


def _pad(node: fx.Node) -> bool:
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
    return _substitute(node, made)


def _last_axes(node: fx.Node) -> bool:
    """Linear layers and normalisation over last axes: all axes before them become one."""
    x: Any = node.args[0]
    sizes = sizes_of(x)
    kept = len(node.args[1]) if isinstance(node.args[1], list | tuple) else 1
    low = reshaped(node, x, [math.prod(sizes[:-kept]), *sizes[-kept:]])
    return _handed_on(node, _called(node, {x: low}))


def _matmul(node: fx.Node) -> bool:
    batch = sizes_of(node)[:-2]
    low = []
    for operand in node.args[:2]:
        sizes = sizes_of(operand)
        if len(sizes) < 2:
            return False
        whole = expanded(node, operand, (*batch, *sizes[-2:]))
        low.append(reshaped(node, whole, [math.prod(batch), *sizes[-2:]]))
    return _substitute(node, insert(node, _ATEN.bmm.default, *low))


_VIEWS = tuple(
    "view reshape _unsafe_view unsqueeze squeeze clone contiguous flatten unflatten alias "
    "detach view_copy squeeze_copy unsqueeze_copy lift_fresh_copy".split()
)
_REDUCTIONS = tuple("sum mean amax amin any all var std logsumexp linalg_vector_norm".split())
_ALONG_ONE = tuple(
    "_softmax _log_softmax softmax log_softmax select slice index_select max min argmax "
    "argmin cumsum cumprod unbind split split_with_sizes prod select_copy slice_copy "
    "unbind_copy split_copy split_with_sizes_copy".split()
)

_TABLE: dict[str, Callable[[fx.Node], bool]] = {
    **dict.fromkeys(_VIEWS, lambda node: _substitute(node, node.args[0])),
    **dict.fromkeys(("permute", "permute_copy", "transpose", "transpose_copy"), _permute_op),
    **dict.fromkeys(
        ("expand", "expand_copy", "broadcast_to"),
        lambda node: _substitute(node, expanded(node, node.args[0], sizes_of(node))),
    ),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_ALONG_ONE, _along_one),
    **dict.fromkeys(("_to_copy", "to"), _pointwise),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "linear", "rms_norm"), _last_axes),
    "cat": _cat,
    "constant_pad_nd": _pad,
    "full": lambda node: _substitute(node, _called(node, size=[math.prod(sizes_of(node))])),
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
