"""Checks a program's protobuf message before coremltools' reader allocates what it declares.

The reader believes sizes: a constant of 10^9 elements would be reserved before anybody sees that
the file has none. So each declared size is compared with what is there, and the sum of all weights
with the weight files: what a package makes a reader allocate is bounded by the package's own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from edgeserve.backends.coreml.interpreter.plan_nodes import MAX_ELEMENTS, malformed
from edgeserve.backends.coreml.interpreter.weight_files import WeightFiles
from edgeserve.backends.coreml.spec import bits_of
from edgeserve.errors import MilError

#: How often the weight files may be referred to as a whole: sharing is rare inside one function.
_MAX_SHARING = 4
#: How many elements may come out of one byte of compressed weights (1-bit indices, vectors of 8).
_MAX_EXPANSION = 64
_SLACK = 1 << 20
#: Blocks inside blocks; converters make two or three.
_MAX_DEPTH = 16
#: Ranks above this exist only in compressed constants.
_MAX_RANK = 16


def check_function(function: Any, files: WeightFiles, package: str) -> None:
    """Check a MIL ``Function`` message.

    Raises:
        MilError: EDGE-MIL-003 weights are missing or not as declared, -004 a shape lies or is too
            large, -005 blocks nested too deep.
    """
    _Checker(files, package).check(function)


class _Checker:
    def __init__(self, files: WeightFiles, package: str) -> None:
        self._files, self._package = files, package
        self._stored = 0
        self._expanded = 0

    def check(self, function: Any) -> None:
        for entry in function.inputs:
            self._elements(entry.type, entry.name)
        for block in function.block_specializations.values():
            self._block(block)
        if self._stored:
            total = self._files.total()
            if self._stored > _MAX_SHARING * total + _SLACK:
                raise self._lie("its constants", f"{self._stored} bytes, read from {total}")
            if self._expanded > _MAX_EXPANSION * total + _SLACK:
                raise self._lie("its weights", f"{self._expanded} elements, from {total} bytes")

    def _block(self, block: Any) -> None:
        pending = [(block, 1)]
        while pending:
            current, depth = pending.pop()
            if depth > _MAX_DEPTH:
                wanted = f"at most {_MAX_DEPTH} blocks inside each other"
                raise malformed(self._package, wanted, "more")
            for operation in current.operations:
                self._operation(operation)
                pending += [(inner, depth + 1) for inner in operation.blocks]

    def _operation(self, operation: Any) -> None:
        for output in operation.outputs:
            elements = self._elements(output.type, output.name)
            if operation.type.startswith("constexpr_"):
                self._expanded += elements
        for value in _values(operation):
            self._value(value, operation.type)

    def _value(self, value: Any, where: str) -> None:
        if value.type.WhichOneof("type") != "tensorType":
            return
        elements = self._elements(value.type, where)
        dtype = _dtype(value.type.tensorType)
        if value.WhichOneof("value") == "blobFileValue":
            blob = value.blobFileValue
            self._stored += self._files.check(blob.fileName, blob.offset, dtype, elements)
        elif value.immediateValue.WhichOneof("value") == "tensor":
            self._immediate(value.immediateValue.tensor, dtype, elements, where)

    def _immediate(self, tensor: Any, dtype: str, elements: int, where: str) -> None:
        kind = tensor.WhichOneof("value")
        if kind is None:
            raise self._lie(f"a constant of {where!r}", "no value at all")
        found = len(getattr(tensor, kind).values)
        wanted = (elements * bits_of(dtype, 8) + 7) // 8 if kind == "bytes" else elements
        if found != wanted:
            raise self._lie(f"a constant of {where!r}", f"{found} values for {wanted} declared")

    def _elements(self, kind: Any, name: str) -> int:
        """Elements of the fixed part of a type; 0 for what is no tensor."""
        while kind.WhichOneof("type") == "stateType":
            kind = kind.stateType.wrappedType
        if kind.WhichOneof("type") != "tensorType":
            return 0
        tensor = kind.tensorType
        sizes = [
            d.constant.size for d in tensor.dimensions if d.WhichOneof("dimension") == "constant"
        ]
        if tensor.rank != len(tensor.dimensions) or tensor.rank > _MAX_RANK:
            raise self._lie(repr(name), f"rank {tensor.rank}, {len(tensor.dimensions)} dimensions")
        # A zero hides no other size: 0 x 10^18 is refused as well.
        if any(size > MAX_ELEMENTS for size in sizes) or math.prod(sizes) > MAX_ELEMENTS:
            raise self._lie(repr(name), f"shape {sizes}")
        return math.prod(sizes)

    def _lie(self, thing: str, got: str) -> MilError:
        return MilError(
            "EDGE-MIL-004",
            f"{thing} in package {self._package!r}",
            wanted=f"sizes that the package holds, at most {MAX_ELEMENTS} elements each",
            got=got,
            hint="make the package again; what it declares is not what it holds",
        )


def _dtype(tensor: Any) -> str:
    from coremltools.proto.MIL_pb2 import DataType

    try:
        return str(DataType.Name(tensor.dataType))
    except ValueError:
        return f"number {tensor.dataType}"


def _values(operation: Any) -> Iterator[Any]:
    """Every constant that an operation carries itself."""
    yield from operation.attributes.values()
    for argument in operation.inputs.values():
        for binding in argument.arguments:
            if binding.WhichOneof("binding") == "value":
                yield binding.value
