"""From a package's protobuf message to one PyMIL function, by coremltools' own reader.

The reader keeps its state in module globals, so that only one may run at a time. While it builds
the program, it computes with numpy whatever has constant inputs; that is kept to small results, so
that a program of ten lines cannot make it fill the memory.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.converters.mil.mil import block as mil_block
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.operation import Operation
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from edgeserve.backends.coreml.interpreter.blob import WeightFiles
from edgeserve.backends.coreml.interpreter.checks import check_function
from edgeserve.backends.coreml.interpreter.package import Package
from edgeserve.backends.coreml.interpreter.pieces import PieceReader
from edgeserve.errors import MilError

__all__ = ["choose_function", "load_function", "refused"]

_LOCK = threading.Lock()

#: The largest result that the reader may compute itself: shapes, indices, masks of attention.
_INFERRED = 1 << 18


def choose_function(package: Package, function: str | None) -> str:
    """The function to run: the asked one, the package's default, ``main``, or the only one.

    Raises:
        MilError: EDGE-MIL-009, there is no such function.
    """
    names = list(package.spec.mlProgram.functions)
    default = package.spec.description.defaultFunctionName
    wanted = function or default or ("main" if "main" in names or len(names) != 1 else names[0])
    if wanted not in names:
        raise MilError(
            "EDGE-MIL-009",
            f"function {wanted!r} of package {package.name!r}",
            wanted=f"one of {sorted(names)}",
            got="no such function",
            hint="leave the function out to run the package's default",
        )
    return wanted


def load_function(package: Package, name: str) -> Any:
    """Check and load one function; the package's message is reduced to it.

    Returns:
        A `coremltools` MIL ``Function``.

    Raises:
        MilError: EDGE-MIL-003 or -004, the package's sizes lie; -005, the reader refused it.
    """
    functions = package.spec.mlProgram.functions
    for other in [each for each in functions if each != name]:
        del functions[other]
    check_function(functions[name], WeightFiles(package.weights, package.name), package.name)
    version = package.spec.specificationVersion
    with _LOCK, _bounded_inference(), _read_in_pieces():
        before = mil_block.BLOCK_STACK
        try:
            program = load(package.spec, version, str(package.weights))
        except (Exception, RecursionError) as error:  # the reader raises whatever it meets
            raise refused(package.name, error) from error
        finally:
            mil_block.BLOCK_STACK = before
    return program.functions[name]


@contextmanager
def _bounded_inference() -> Iterator[None]:
    """Keep the reader from computing large results; only to be used under the lock."""
    original = Operation._auto_val

    def bounded(self: Any, output_types: tuple[Any, ...]) -> Any:
        unknown = tuple(None for _ in output_types)
        if self.op_type == "const":
            return original(self, output_types)
        if any(_large(kind) for kind in output_types):
            return unknown
        try:
            return original(self, output_types)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
            return unknown  # its numpy code fails on some inputs that the op itself takes

    Operation._auto_val = bounded
    try:
        yield
    finally:
        Operation._auto_val = original


@contextmanager
def _read_in_pieces() -> Iterator[None]:
    """Keep the reader from mapping the whole file of weights; only to be used under the lock."""
    reader: Any = sys.modules[load.__module__]
    original = reader.BlobReader
    reader.BlobReader = lambda path: PieceReader(Path(path), original)
    try:
        yield
    finally:
        reader.BlobReader = original


def _large(kind: Any) -> bool:
    if not types.is_tensor(kind):
        return False
    return math.prod(int(s) for s in kind.get_shape() if not is_symbolic(s)) > _INFERRED


def refused(package: str, error: BaseException) -> MilError:
    """What the reader, or a step on its program, threw: as a coded error."""
    lines = str(error).strip().splitlines()
    return MilError(
        "EDGE-MIL-005",
        f"package {package!r}",
        wanted="a program that coremltools reads",
        got=f"{type(error).__name__}: {lines[0] if lines else 'no message'}",
        hint="make the package again with this version of coremltools",
    )
