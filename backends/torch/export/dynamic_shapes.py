"""Dynamic dimensions: from the user's declaration to `torch.export`'s form, and back to names.

A user declares for each input which axes may vary: ``{"image": {0: "batch"}}``, with a name, a
``(name, low, high)`` or a `torch.export.Dim`. The resulting `Signature` has every dynamic axis
under the user's name, with the range for which the trace is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from edgeserve.backends.torch.export.pytree import Leaf
from edgeserve.errors import ConvertError

#: "No upper bound" in a signature's ranges.
UNBOUNDED = 2**31 - 1

#: For one input: axis -> its dynamic shape for torch.export.
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
    parsed = []
    for leaf, name in zip(inputs, names, strict=True):
        spec = shapes[name] if name in shapes else _descend(shapes, leaf)
        parsed.append(_axes(spec, name, leaf.value.dim(), made))
    return tuple(parsed)


def _descend(spec: Any, leaf: Leaf) -> Any:
    """Follow a leaf's path into nested shapes; None means that everything below is fixed."""
    for key in leaf.path:
        if spec is None:
            return None
        if isinstance(spec, Mapping):
            spec = spec.get(key)
        else:
            spec = spec[key] if isinstance(key, int) and key < len(spec) else None
    return spec


def _axes(spec: Any, name: str, rank: int, made: dict[str, Dim]) -> Axes:
    if spec is None:
        return {}
    if isinstance(spec, Mapping):
        pairs = list(spec.items())
    elif isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) == rank:
        pairs = list(enumerate(spec))
    else:
        raise _bad(name, f"a dict of axes below {rank}", repr(spec))
    axes: Axes = {}
    for axis, dim in pairs:
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise _bad(name, f"an axis below {rank}", repr(axis))
        if (parsed := _dim(dim, name, made)) is not None:
            axes[axis % rank] = parsed
    return axes


def _dim(spec: Any, name: str, made: dict[str, Dim]) -> Any:
    """One axis: a fixed size (None or int), a name, (name, low, high), a Dim or a Dim hint."""
    if spec is None or isinstance(spec, int) or spec == Dim.STATIC:
        return None
    if isinstance(spec, Dim):
        return made.setdefault(spec.__name__, spec)
    if not isinstance(spec, str | tuple | list):
        return spec  # Dim.AUTO and Dim.DYNAMIC; torch rejects anything else itself
    word, low, high = (spec, 1, None) if isinstance(spec, str) else _triple(spec, name)
    if word not in made:
        try:
            made[word] = Dim(word, min=low, max=high)
        except AssertionError as error:
            raise _bad(name, "an identifier and an increasing range", str(error)) from error
    return made[word]


def _triple(spec: Sequence[Any], name: str) -> tuple[str, int, int]:
    kinds = tuple(type(part) for part in spec)
    if kinds != (str, int, int):
        raise _bad(name, '("batch", 1, 8): a name, the smallest and the largest size', repr(spec))
    return spec[0], spec[1], spec[2]


def _bad(thing: str, wanted: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-025",
        f"dynamic_shapes: {thing}" if thing != "dynamic_shapes" else thing,
        wanted=wanted,
        got=got,
        hint='write it as {"input": {0: "batch"}} or {"input": {0: ("batch", 1, 8)}}',
    )


def expand_unit_dims(tensors: Sequence[torch.Tensor], axes: Sequence[Axes]) -> list[torch.Tensor]:
    """Examples for the trace: every dynamic axis of size 1 repeated to size 2.

    `torch.export` treats a size of 0 or 1 in the example as a constant, so a model exported with
    one photo would always take one photo. Axes that share a dimension grow together.
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
    """The examples cut to the smallest allowed sizes; None if they have these already."""
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
    """Names of the trace's symbols: the user's, or made from tensor and axis."""

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
        """Smallest and largest value of an increasing expression of one symbol."""
        symbol = next(iter(expression.free_symbols))
        span = self.ranges[symbol]
        low = int(expression.subs(symbol, max(1, int(span.lower))))
        if span.upper >= UNBOUNDED:
            return low, UNBOUNDED
        return low, int(expression.subs(symbol, int(span.upper)))
