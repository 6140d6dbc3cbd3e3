"""The table of kernels: which function computes which MIL op.

A kernel is an ordinary function that takes the op's inputs by their MIL names and returns one
`torch.Tensor`, or a tuple with one for each output::

    @kernel("relu")
    def relu(x: Tensor) -> Tensor:
        return x.relu()

Numeric inputs arrive as tensors (rank 0 for scalars), strings as ``str``, a list input
(``values`` of ``concat``) as ``list[Tensor]``; an optional input that the program leaves out and
that has no default is left out. Floating values are float32 whatever the program says, and the
executor rounds and casts what a kernel returns to the type of the op's output.

Every module of this package is a family of ops or part of the machinery; `kernels` imports all, so
a new family is one new file.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from edgeserve.errors import MilError

_F = TypeVar("_F", bound=Callable[..., Any])

#: Kernels by op type, each list by rising opset.
_TABLE: dict[str, list[Kernel]] = {}

#: Parameters that are no inputs of the op but what the executor lends a kernel.
_EXECUTOR_ARGUMENTS = ("op", "run_block")


@dataclass(frozen=True)
class Kernel:
    """One registered kernel.

    Attributes:
        function: What computes the op.
        since: The first opset it is meant for, as a Core ML specification version (iOS 17 is 8).
        wants: Which of "op" (the PyMIL operation) and "run_block" (runs the op's n-th nested
            block) it declares as parameters.
    """

    function: Callable[..., Any]
    since: int
    wants: frozenset[str]


#: Core ML specification versions by the name of the release that brought them.
_VERSIONS = {"ios13": 4, "ios14": 5, "ios15": 6, "ios16": 7, "ios17": 8, "ios18": 9, "ios26": 10}


def kernel(*names: str, since: str = "ios13") -> Callable[[_F], _F]:
    """Register a function as the kernel of one or several MIL op types.

    Args:
        names: Op types ("conv").
        since: The first opset it is meant for; an op that changed has several kernels, and the
            newest that the program's opset allows is taken.
    """

    def register(function: _F) -> _F:
        parameters = inspect.signature(function).parameters
        wants = frozenset(name for name in _EXECUTOR_ARGUMENTS if name in parameters)
        entry = Kernel(function, _VERSIONS[since], wants)
        for name in names:
            table = _TABLE.setdefault(name, [])
            if any(other.since == entry.since for other in table):
                raise ValueError(f"two kernels for {name!r} since {since}")
            table.append(entry)
            table.sort(key=lambda each: each.since)
        return function

    return register


def register_functions(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Register kernels that are one expression of the op's inputs, by op type."""
    for name, function in functions.items():
        kernel(name)(function)


@cache
def kernels() -> dict[str, list[Kernel]]:
    """All kernels by op type; imports every family on the first call."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return _TABLE


def supported_ops() -> tuple[str, ...]:
    """The MIL op types that the interpreter runs, sorted."""
    return tuple(sorted(kernels()))


def find(op_type: str, opset: int, package: str) -> Kernel:
    """The kernel for an op.

    Args:
        op_type: MIL op type.
        opset: The program's opset, as a specification version.
        package: Name of the package, for the error.

    Raises:
        MilError: EDGE-MIL-001, there is none.
    """
    fitting = [each for each in kernels().get(op_type, ()) if each.since <= opset]
    if not fitting:
        thing = f"op {op_type!r} in package {package!r}"
        wanted = f"one of the {len(kernels())} ops that the interpreter runs"
        hint = "verify this package on a Mac, or convert the model so that it avoids the op"
        raise MilError("EDGE-MIL-001", thing, wanted=wanted, got=op_type, hint=hint)
    return fitting[-1]
