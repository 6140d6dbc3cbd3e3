"""A module as a flat function: named tensors in by position, a tuple of tensors out."""

from __future__ import annotations

import contextlib
import inspect
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgeserve.backends.torch.export.pytree import (
    Leaf,
    bind_inputs,
    name_outputs,
    replace_tensors,
    tree_leaves,
    unique_names,
)
from edgeserve.backends.torch.module_state.snapshot import BufferSnapshot

_Parameter = inspect.Parameter


#: Inputs or outputs by position.
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class ModuleOutputs:
    """A module's outputs: names and tensors in order."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class FlatModule:
    """A module, its example arguments, and which of their leaves are tensor inputs.

    Attributes:
        module: In eval mode, on the CPU.
        signature: Of its own forward.
        arguments: Example arguments of forward by name, nested as forward takes them.
        inputs: The tensor leaves of ``arguments``, in order.
        constants: The other leaves that are not None, fixed at their values in the examples.
    """

    module: torch.nn.Module
    signature: inspect.Signature
    arguments: dict[str, Any]
    inputs: tuple[Leaf, ...]
    constants: tuple[Leaf, ...]

    @property
    def examples(self) -> list[torch.Tensor]:
        """The example tensors, in order."""
        return [leaf.value for leaf in self.inputs]

    @property
    def names(self) -> list[str]:
        """Names of the inputs, from forward's arguments and the keys inside them."""
        return unique_names([leaf.name for leaf in self.inputs])

    def call(self, tensors: Tensors) -> ModuleOutputs:
        """Call the module as it is; neither the tensors nor its buffers change.

        Raises:
            ConvertError: EDGE-CONVERT-016.
        """
        buffers = BufferSnapshot(self.module)
        try:
            return self.run(tensors)
        finally:
            buffers.restore()

    def run(self, tensors: Tensors) -> ModuleOutputs:
        """Names and copies of the module's outputs; its buffers keep their changes.

        Raises:
            ConvertError: EDGE-CONVERT-016.
        """
        positional, named = self._arguments([tensor.clone() for tensor in tensors])
        with torch.no_grad():
            names, found = name_outputs(self.module(*positional, **named))
        return ModuleOutputs(tuple(names), tuple(tensor.clone() for tensor in found))

    @contextlib.contextmanager
    def flat_forward(self, names: Sequence[str]) -> Iterator[torch.nn.Module]:
        """The module with a flat forward whose arguments have these names; restored at the end.

        Only ``forward`` is replaced, on this one object: names of parameters and submodules, and
        with them the exported program's, stay the user's own.
        """
        original = self.module.forward

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            positional, named = self._arguments(tensors)
            return tuple(name_outputs(original(*positional, **named))[1])

        parameters = [_Parameter(n, _Parameter.POSITIONAL_OR_KEYWORD) for n in _python_names(names)]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        had = self.module.__dict__.get("forward")
        self.module.__dict__["forward"] = forward
        try:
            yield self.module
        finally:
            del self.module.__dict__["forward"]
            if had is not None:
                self.module.__dict__["forward"] = had

    def _arguments(self, tensors: Tensors) -> tuple[list[Any], dict[str, Any]]:
        """Forward's arguments with these tensors in the examples' places, by position at first."""
        named: dict[str, Any] = replace_tensors(self.arguments, iter(tensors))
        positional: list[Any] = []
        for name, parameter in self.signature.parameters.items():
            by_name = parameter.kind in (_Parameter.KEYWORD_ONLY, _Parameter.VAR_KEYWORD)
            if name not in named or by_name:
                break  # what follows a left-out argument goes by name
            value = named.pop(name)
            positional += value if parameter.kind is _Parameter.VAR_POSITIONAL else [value]
        return positional, named


def _python_names(names: Sequence[str]) -> list[str]:
    """Valid names for a Python signature; only torch sees them."""
    safe = [
        name if name.isidentifier() and not keyword.iskeyword(name) else f"input_{i}"
        for i, name in enumerate(names)
    ]
    return unique_names(safe)


def flatten_module(module: torch.nn.Module, examples: object) -> FlatModule:
    """Read a module's example inputs.

    Raises:
        ConvertError: EDGE-CONVERT-011.
    """
    arguments = bind_inputs(module, examples)
    found = list(tree_leaves(arguments))
    tensors = tuple(leaf for leaf in found if isinstance(leaf.value, torch.Tensor))
    others = [leaf for leaf in found if not isinstance(leaf.value, torch.Tensor)]
    fixed = tuple(leaf for leaf in others if leaf.value is not None)
    return FlatModule(module, inspect.signature(module.forward), arguments, tensors, fixed)
