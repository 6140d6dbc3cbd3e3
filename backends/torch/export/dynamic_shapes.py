"""Dynamic dimensions: from what the user writes to what `torch.export` takes, and back to names.

A user writes, for each input, which axes may vary: ``{"image": {0: "batch"}}``, with a name, a
``(name, low, high)`` or a `torch.export.Dim`. What comes back is a `Signature`: every dynamic axis
by the user's name, with the range for which the trace holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from edgeserve.backends.torch.export.pytree import Leaf
from edgeserve.errors import ConvertError

__all__ = [
    "UNBOUNDED",
    "Axes",
    "DimNames",
    "expand_unit_dims",
    "min_size_examples",
    "parse_dynamic_shapes",
]

#: Stands for "no upper bound" in a signature's ranges.
UNBOUNDED = 2**31 - 1

#: For one input: axis -> what torch.export is told about it.
Axes = dict[int, Any]


def parse_dynamic_shapes(
    shapes: object, inputs: Sequence[Leaf], names: Sequence[str]
) -> tuple[Axes, ...]:
    """Read ``dynamic_shapes``: for each input the axes that may vary.

    Args:
        shapes: None, a dict by name (the given name of an input, or the argument of forward) or a
            sequence in the order of forward's arguments. Nested arguments are given in the same
            nesting.
        inputs: The tensor inputs, in order.
        names: The inputs' given names.

    Raises:
        ConvertError: EDGE-CONVERT-025, naming the input.
    """
    made: dict[str, Dim] = {}
    arguments = list(dict.fromkeys(leaf.path[0] for leaf in inputs))
    if isinstance(shapes, Sequence) and not isinstance(shapes, str):
        shapes = dict(zip(arguments, shapes, strict=False))
    if shapes is None:
        shapes = {}
    if not isinstance(shapes, Mapping):
        raise _bad("dynamic_shapes", "a dict of input names", type(shapes).__name__)
    unknown = set(shapes) - set(arguments) - set(names)
    if unknown:
        raise _bad("dynamic_shapes", f"names among {list(names)}", f"{sorted(map(str, unknown))}")
    found = []
    for leaf, name in zip(inputs, names, strict=True):
        said = shapes[name] if name in shapes else _descend(shapes, leaf)
        found.append(_axes(said, name, leaf.value.dim(), made))
    return tuple(found)


def _descend(said: Any, leaf: Leaf) -> Any:
    """Follow a leaf's path into nested shapes; None anywhere means that all below is fixed."""
    for key in leaf.path:
        if said is None:
            return None
        if isinstance(said, Mapping):
            said = said.get(key)
        else:
            said = said[key] if isinstance(key, int) and key < len(said) else None
    return said


def _axes(said: Any, name: str, rank: int, made: dict[str, Dim]) -> Axes:
    if said is None:
        return {}
    if isinstance(said, Mapping):
        pairs = list(said.items())
    elif isinstance(said, Sequence) and not isinstance(said, str) and len(said) == rank:
        pairs = list(enumerate(said))
    else:
        raise _bad(name, f"a dict of axes below {rank}", repr(said))
    axes: Axes = {}
    for axis, dim in pairs:
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise _bad(name, f"an axis below {rank}", repr(axis))
        if (parsed := _dim(dim, name, made)) is not None:
            axes[axis % rank] = parsed
    return axes


def _dim(said: Any, name: str, made: dict[str, Dim]) -> Any:
    """One axis: a fixed size (None or int), a name, (name, low, high), a Dim or a Dim hint."""
    if said is None or isinstance(said, int) or said == Dim.STATIC:
        return None
    if isinstance(said, Dim):
        return made.setdefault(said.__name__, said)
    if not isinstance(said, str | tuple | list):
        return said  # Dim.AUTO and Dim.DYNAMIC; torch refuses anything else with its own words
    word, low, high = (said, 1, None) if isinstance(said, str) else _triple(said, name)
    if word not in made:
        try:
            made[word] = Dim(word, min=low, max=high)
        except AssertionError as error:
            raise _bad(name, "an identifier and a range that rises", str(error)) from error
    return made[word]


def _triple(said: Sequence[Any], name: str) -> tuple[str, int, int]:
    kinds = tuple(type(part) for part in said)
    if kinds != (str, int, int):
        raise _bad(name, '("batch", 1, 8): a name, the smallest and the largest size', repr(said))
    return said[0], said[1], said[2]


def _bad(thing: str, wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-025",
        f"dynamic_shapes: {thing}" if thing != "dynamic_shapes" else thing,
        wanted=wanted,
        got=got,
        hint='write it as {"input": {0: "batch"}} or {"input": {0: ("batch", 1, 8)}}',
    )


def expand_unit_dims(tensors: Sequence[torch.Tensor], axes: Sequence[Axes]) -> list[torch.Tensor]:
    """Examples to trace with: every dynamic axis of size 1 repeated to size 2.

    `torch.export` takes a size of 0 or 1 in the example for a constant, so a model exported with
    one photo would take one photo for ever. Axes that share a dimension grow together.
    """
    derived = {d.root.__name__ for per in axes for d in per.values() if hasattr(d, "root")}
    made = []
    for tensor, per in zip(tensors, axes, strict=True):
        for axis, dim in per.items():
            name = getattr(dim, "__name__", None)
            if (
                isinstance(dim, Dim)
                and name not in derived
                and tensor.shape[axis] == 1
                and dim.max >= 2
            ):
                tensor = torch.cat([tensor, tensor], axis)
        made.append(tensor)
    return made


def min_size_examples(
    tensors: Sequence[torch.Tensor], axes: Sequence[Axes]
) -> list[torch.Tensor] | None:
    """The examples cut to the smallest size that each dimension allows; None if that is them."""
    cut = []
    for tensor, per in zip(tensors, axes, strict=True):
        for axis, dim in per.items():
            if not isinstance(dim, Dim) or hasattr(dim, "root"):
                return None
            low = max(1, int(dim.min))
            tensor = tensor.narrow(axis, 0, min(low, tensor.shape[axis]))
        cut.append(tensor)
    same = all(a.shape == b.shape for a, b in zip(cut, tensors, strict=True))
    return None if same else cut


@dataclass
class DimNames:
    """Names of the trace's symbols: the user's where given, else made of tensor and axis."""

    ranges: Mapping[Any, Any]

    def __post_init__(self) -> None:
        self._names: dict[str, str] = {}
        self.dims: dict[str, tuple[int, int]] = {}

    def shape(
        self, tensor: torch.Tensor, owner: str, axes: Axes | None = None
    ) -> tuple[int | str, ...]:
        """The shape with names; an input's ranges (``axes`` given) are kept."""
        return tuple(
            size if isinstance(size, int) else self._name(size, f"{owner}_dim{i}", i, axes)
            for i, size in enumerate(tensor.shape)
        )

    def _name(self, size: torch.SymInt, fallback: str, axis: int, axes: Axes | None) -> str:
        expression = size.node.expr
        key = str(expression)
        if key not in self._names:
            given = getattr((axes or {}).get(axis), "__name__", "")
            self._names[key] = given if given.isidentifier() else fallback
        name = self._names[key]
        if axes is not None:
            self.dims.setdefault(name, self._range(expression))
        return name

    def _range(self, expression: Any) -> tuple[int, int]:
        """Smallest and largest value of a rising expression of one symbol."""
        symbol = next(iter(expression.free_symbols))
        span = self.ranges[symbol]
        low = int(expression.subs(symbol, max(1, int(span.lower))))
        if span.upper >= UNBOUNDED:
            return low, UNBOUNDED
        return low, int(expression.subs(symbol, int(span.upper)))
