"""The PyTorch translation of each ONNX operator: the table, and the node that an entry gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class UnimportableOp(Exception):
    """A node that has no PyTorch form.

    Attributes:
        op: Its operator, with the domain where that is not ONNX's own.
        node: Its name.
        why: In a few words.
    """

    def __init__(self, op: str, node: str, why: str) -> None:
        super().__init__(f"{op} {node!r}: {why}")
        self.op, self.node, self.why = op, node, why


@dataclass(frozen=True)
class OnnxNode:
    """One node of a graph, read.

    Attributes:
        op: Operator.
        name: Its own name, else one made of operator and number.
        opset: Version of the operator set that its graph names.
        attributes: As Python values; tensors as arrays.
        inputs: Names of values; empty where one is left out.
        outputs: Likewise; those at the end may be missing.
        constants: Inputs that are known before the graph runs, by position.
    """

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def has(self, position: int) -> bool:
        """Whether there is such an input."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def known(self, position: int) -> np.ndarray:
        """The value of an input that must be a constant.

        Raises:
            Unimportable: it is none.
        """
        if position not in self.constants:
            raise self.refuse(f"its input {position} is computed from the model's inputs")
        return self.constants[position]

    def integers(self, name: str, position: int) -> list[int] | None:
        """Integers that older operator sets have as an attribute, newer ones as an input."""
        if self.has(position):
            return [int(n) for n in self.known(position).reshape(-1)]
        found = self.get(name)
        return None if found is None else [int(n) for n in found]

    def wants(self, count: int) -> bool:
        """Whether an output at that position is asked for."""
        return len(self.outputs) > count and bool(self.outputs[count])

    def refuse(self, why: str) -> UnimportableOp:
        """The error for something about this node that PyTorch has no form for."""
        return UnimportableOp(self.op, self.name, why)


@dataclass(frozen=True)
class OpEntry:
    """One line of the table.

    Attributes:
        run: Takes the node and its inputs as tensors (None where one is left out or in ``host``)
            and gives one tensor, or a tuple of them.
        host: Positions of inputs that are read with `Node.known` alone.
    """

    run: Callable[..., Any]
    host: tuple[int, ...]


_TABLE: dict[str, OpEntry] = {}


def op(*names: str, host: Sequence[int] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table, for operators of ONNX's own domain."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in _TABLE, name
            _TABLE[name] = OpEntry(function, tuple(host))
        return function

    return enter


def register_functions(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Enter operators that a function of PyTorch does as it is, whatever the node says."""

    def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda node, *inputs: function(*inputs)

    register_nodes({name: plainly(function) for name, function in functions.items()})


def register_nodes(functions: Mapping[str, Callable[..., Any]], host: Sequence[int] = ()) -> None:
    """Enter operators that are one expression of the node's attributes and its inputs."""
    for name, function in functions.items():
        op(name, host=host)(function)


def known_ops() -> tuple[str, ...]:
    """All operators with an entry, sorted."""
    _register_ops()
    return tuple(sorted(_TABLE))


def entry_of(name: str) -> OpEntry | None:
    """The entry of an operator of ONNX's own domain."""
    _register_ops()
    return _TABLE.get(name)


def _register_ops() -> None:
    from edgeserve.backends.torch.onnx_import import (  # noqa: F401
        activations,
        conv_pool,
        elementwise,
        matmul_reduce,
        normalization,
        recurrent,
        resizing,
        selection,
        shape_ops,
    )
