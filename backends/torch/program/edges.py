"""The constants of a program at which an answer may turn, as values of its inputs.

A threshold, a clamp's bound, a bucket's boundary, a divisor: random inputs seldom lie on one, and
there a wrong lowering shows. The graph is walked from the inputs for as long as a value is an
input moved (a reshape, a cast, a choice) or scaled (``a * x + b``), and each constant that such a
value meets is solved for the input.

What a walk through whole numbers finds is exact, and so is what a float input meets directly. A
constant behind arithmetic on floats is not: on which side of it a value falls is up to rounding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from edgeserve.backends.edge_values import Edge
from edgeserve.backends.torch.passes.fx_utils import dtype_of, tensor_of
from edgeserve.backends.torch.program.rounding import operator_name

#: torch's symbol for a size that depends on values.
_UNBACKED = re.compile(r"\bu\d+\b")
#: Largest constant tensor whose numbers are taken one by one: a table of weights is none.
_MAX_NUMBERS = 64
#: Most edges of one program: each costs a few runs.
_MAX_EDGES = 256

#: Operators that hand on the numbers of their first tensor, some of them or in another order.
_MOVES = frozenset(
    "_to_copy alias as_strided broadcast_to chunk clone contiguous detach detach_ expand expand_as"
    " flatten flip gather getitem index index_select lift_fresh lift_fresh_copy masked_fill"
    " max min amax amin movedim narrow permute positive repeat reshape roll select slice split"
    " split_with_sizes squeeze stack cat sum_to_size t tile to transpose type_as unbind unflatten"
    " unsqueeze unfold view view_as where abs sort topk pad constant_pad_nd".split()
)
#: Operators that compare a value with a number, or cut it there.
_THRESHOLDS = frozenset(
    "bucketize clamp clamp_ clamp_max clamp_min eq ge greater greater_equal gt hardshrink hardtanh"
    " heaviside isin le less less_equal lt maximum minimum ne not_equal searchsorted softshrink"
    " threshold".split()
)
#: Where operators turn that are given no number.
_BUILT_IN: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(
        "abs celu elu leaky_relu logical_not prelu relu relu_ selu sgn sign signbit".split(), (0.0,)
    ),
    "hardsigmoid": (-3.0, 3.0),
    "hardswish": (-3.0, 3.0),
    "relu6": (0.0, 6.0),
}
#: Thresholds after which the value goes on, cut.
_CUTS = frozenset(
    "clamp clamp_ clamp_max clamp_min hardtanh maximum minimum relu relu_ relu6".split()
)
_DIVISIONS = frozenset("div divide floor_divide fmod remainder".split())
_ROUNDINGS = frozenset("ceil fix floor frac round trunc".split())


@dataclass(frozen=True)
class _Reached:
    """A value that is ``scale * x + offset`` of numbers x of an input.

    Attributes:
        input: Which, by its place.
        exact: Nothing was rounded on the way.
    """

    input: int
    scale: float = 1.0
    offset: float = 0.0
    exact: bool = True

    def edge(self, value: float, period: float = 0.0) -> tuple[int, Edge]:
        """The edge of the input at which this value is ``value``."""
        at, step = (value - self.offset) / self.scale, abs(period / self.scale)
        return self.input, Edge(at, step, self.exact)


def find_edges(module: fx.GraphModule) -> dict[int, tuple[Edge, ...]]:
    """The edges of each input, by its place; inputs that meet no constant are left out.

    Nothing of a program with sizes that depend on values (`has_value_sizes`).

    Args:
        module: Of a program: its placeholders are the inputs, its nodes know their values' dtypes.
    """
    if has_value_sizes(module):
        return {}
    found: dict[tuple[int, Edge], None] = {}
    for each in _Walk(module).edges():
        if math.isfinite(each[1].value) and math.isfinite(each[1].period):
            found[each] = None
        if len(found) >= _MAX_EDGES:
            break
    places = dict.fromkeys(place for place, _ in found)
    return {place: tuple(e for p, e in found if p == place) for place in places}


def has_value_sizes(module: fx.GraphModule) -> bool:
    """Whether a size depends on values, so that a large one could take all memory."""
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in module.graph.nodes)
    return any(_UNBACKED.search(str(size)) for shape in shapes for size in shape)


class _Walk:
    """From a graph's inputs forward."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._reached: dict[fx.Node, _Reached] = {}

    def edges(self) -> Iterator[tuple[int, Edge]]:
        """Each edge with the place of its input, in the order of the graph."""
        place = 0
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._reached[node] = _Reached(place)
                place += 1
            elif node.op == "call_function":
                yield from self._step(node)

    def _step(self, node: fx.Node) -> Iterator[tuple[int, Edge]]:
        """The edges of one op, and what its value is of an input."""
        name = operator_name(node)
        source = next((self._reached[n] for n in node.all_input_nodes if n in self._reached), None)
        if source is None:
            return
        numbers = tuple(self._numbers(node))
        yield from (source.edge(value) for value in _BUILT_IN.get(name, ()))
        if name in _THRESHOLDS:
            yield from (source.edge(value) for value in numbers)
        if name in _DIVISIONS and (name not in ("div", "divide") or _rounding_mode(node)):
            yield from (source.edge(0.0, abs(value)) for value in numbers if value)
        if name in _ROUNDINGS or _casts_to_whole(node):
            yield source.edge(0.5 if name == "round" else 0.0, 1.0)
        if (after := self._after(node, name, source, numbers)) is not None:
            self._reached[node] = after

    def _after(
        self, node: fx.Node, name: str, source: _Reached, numbers: tuple[float, ...]
    ) -> _Reached | None:
        """What the op's value is of the input; None where it is nothing simple."""
        if name in _MOVES or name in _CUTS or name in _ROUNDINGS or name in ("remainder", "fmod"):
            return source
        made = _affine(node, name, source, numbers[0] if len(numbers) == 1 else None)
        if made is None or not made.scale:
            return None
        whole = not _is_float(node) or name == "neg"
        return made if whole else replace(made, exact=False)

    def _numbers(self, node: fx.Node) -> Iterator[float]:
        """The constants among an op's operands: numbers, and tensors of a few."""
        given = [*node.args, *(v for k, v in node.kwargs.items() if k not in _OPTIONS)]
        if operator_name(node) in ("add", "sub", "rsub"):
            given = given[:2]  # the third is a factor
        for value in given:
            if isinstance(value, bool):
                continue
            if isinstance(value, int | float):
                yield float(value)
            elif isinstance(value, fx.Node) and value not in self._reached:
                yield from self._stored(value)

    def _stored(self, node: fx.Node) -> list[float]:
        """The numbers of a small constant tensor."""
        while node.op == "call_function" and operator_name(node) in _MOVES and node.all_input_nodes:
            node = node.all_input_nodes[0]
        if node.op == "call_function" and operator_name(node) in ("full", "scalar_tensor"):
            value = node.args[-1]
            return [float(value)] if isinstance(value, int | float) else []
        tensor = tensor_of(self._module, node) if node.op == "get_attr" else None
        if tensor is None or tensor.numel() > _MAX_NUMBERS or tensor.is_complex():
            return []
        return [float(value) for value in tensor.detach().flatten().tolist()]


#: Keywords whose numbers are no operands.
_OPTIONS = frozenset("alpha dim dtype right out_int32 side sorter layout device".split())


def _affine(node: fx.Node, name: str, source: _Reached, number: float | None) -> _Reached | None:
    """The value after a sum or product with one number."""
    scale, offset = source.scale, source.offset
    if name == "neg":
        return replace(source, scale=-scale, offset=-offset)
    if number is None or (name in ("add", "sub", "rsub") and _has_factor(node)):
        return None
    if name in ("add", "add_"):
        return replace(source, offset=offset + number)
    if name == "rsub" or (name == "sub" and not isinstance(node.args[0], fx.Node)):
        return replace(source, scale=-scale, offset=number - offset)
    if name == "sub":
        return replace(source, offset=offset - number)
    if name in ("mul", "mul_"):
        return replace(source, scale=scale * number, offset=offset * number)
    if name in ("div", "divide", "floor_divide") and number:
        return replace(source, scale=scale / number, offset=offset / number)
    return None


def _has_factor(node: fx.Node) -> bool:
    return len(node.args) > 2 or "alpha" in node.kwargs


def _rounding_mode(node: fx.Node) -> Any:
    return node.kwargs.get("rounding_mode", node.args[2] if len(node.args) > 2 else None)


def _is_float(node: fx.Node) -> bool:
    """Whether a value is of floats; one of unknown dtype counts as such."""
    dtype = dtype_of(node)
    return dtype is None or dtype.is_floating_point


def _casts_to_whole(node: fx.Node) -> bool:
    """Whether an op casts floats to whole numbers, or anything to truth values."""
    if operator_name(node) not in ("to", "_to_copy", "type_as"):
        return False
    before, after = dtype_of(node.all_input_nodes[0]), dtype_of(node)
    if before is None or after is None or after == before:
        return False
    return after is torch.bool or (before.is_floating_point and not after.is_floating_point)
