"""The largest index that a program can look up with each of its inputs.

An input leads to tables through copies and changes of shape and dtype only; what arithmetic makes
of it is another index, of which nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from edgeserve.backends.torch.passes.fx_utils import arguments_of, overloads

#: Operators that give the same numbers, of other shape or dtype.
_VIEWS = overloads(
    "alias clone contiguous detach expand flatten.using_ints lift_fresh_copy permute reshape "
    "select.int slice.Tensor squeeze squeeze.dim to.dtype transpose.int unflatten.int unsqueeze "
    "view _to_copy"
)
_ATEN = torch.ops.aten


def index_bounds(module: fx.GraphModule) -> tuple[int | None, ...]:
    """The bound of each input, in their order; None where an input looks up nothing."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(min(_bounds(place), default=None) for place in places)


def _bounds(node: fx.Node) -> Iterator[int]:
    for user in node.users:
        if user.op != "call_function":
            continue
        if user.target in _VIEWS:
            yield from _bounds(user)
        elif isinstance(size := _table_size(user, node), int):
            yield size - 1


def _table_size(user: fx.Node, index: fx.Node) -> Any:
    """The size of what an operator looks an index up in; None where it does not."""
    if user.target is _ATEN.one_hot.default:
        return size if (size := arguments_of(user)["num_classes"]) > 0 else None
    if user.target in (_ATEN.embedding.default, _ATEN.embedding_bag.default):
        return _size(user.args[0], 0) if user.args[1] is index else None
    if user.target is _ATEN.index.Tensor:
        places: Any = user.args[1]
        sizes = [_size(user.args[0], axis) for axis, each in enumerate(places) if each is index]
        return min((size for size in sizes if size is not None), default=None)
    if user.target in (_ATEN.index_select.default, _ATEN.gather.default):
        return _size(user.args[0], user.args[1]) if user.args[2] is index else None
    return None


def _size(table: Any, axis: Any) -> int | None:
    """The size of a table's axis, where it is fixed."""
    size = table.meta["val"].shape[axis] if "val" in table.meta else None
    return size if isinstance(size, int) else None
