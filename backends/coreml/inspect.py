"""The content of a Core ML package, read from its protobuf message; nothing runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from edgeserve.backends.coreml.metadata import SourceMap
from edgeserve.backends.coreml.spec import (
    bits_of,
    block_of,
    dtype_of,
    is_constant,
    name_of,
    operations_of,
    read_spec,
)
from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.types.artifact import Artifact

_ZERO_POINTS = {"offset", "zero_point"}


class ConstantTensor(NamedTuple):
    """A constant tensor of a program.

    Attributes:
        name: Its value, or the value that it belongs to ("w_quantized.scale").
        dtype: As stored ("int8").
        shape: Its dimensions.
        place: File and offset of its bytes; None where they stand in the message.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    place: tuple[str, int] | None

    @property
    def bytes(self) -> int:
        """Bytes it takes."""
        return math.ceil(math.prod(self.shape) * bits_of(self.dtype.upper()) / 8)


def inspect_coreml(artifact: Artifact, root: Path) -> Graph:
    """The graph of an artifact's package: of several functions, that of the largest one.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    spec = read_spec(artifact, root)
    functions = spec.mlProgram.functions
    name = artifact.io.signature or "main"
    origin = SourceMap.of(spec)
    ops = tuple(
        _op(operation, origin, name)
        for operation in operations_of(block_of(functions[name]))
        if not is_constant(operation)
    )
    constants = [each for key in sorted(functions) for each in constants_of(functions[key])]
    return Graph(
        inputs=artifact.io.inputs,
        outputs=artifact.io.outputs,
        ops=ops,
        weights=_weights(constants),
        opset={"": int(functions[name].opset.removeprefix("CoreML"))},
    )


def constants_of(function: Any) -> Iterator[ConstantTensor]:
    """Constant tensors of a function: weights, also compressed ones, and their scales.

    Sizes, axes, indices and other plain integers are no weights, nor are zero points.
    """
    for operation in operations_of(block_of(function)):
        if not is_constant(operation):
            continue
        made = operation.outputs[0].name
        values = _values(operation)
        for key in sorted(set(values) - _ZERO_POINTS):
            name = made if key == "val" else f"{made}.{key}"
            constant = _constant(name, values[key])
            if constant is not None and (key != "val" or "float" in constant.dtype):
                yield constant


def _values(operation: Any) -> dict[str, Any]:
    """The immediate values of an operation, by parameter; attributes in iOS 16."""
    given = {key: each.arguments[0] for key, each in operation.inputs.items() if each.arguments}
    inline = {key: each.value for key, each in given.items() if each.HasField("value")}
    return {k: v for k, v in operation.attributes.items() if k != "name"} | inline


def _constant(name: str, value: Any) -> ConstantTensor | None:
    """A value as a constant tensor; None for scalars, texts and integers in the message."""
    kind = value.type.tensorType
    shape = tuple(int(dim.constant.size) for dim in kind.dimensions)
    word = dtype_of(kind)
    if value.WhichOneof("value") == "blobFileValue":
        blob = value.blobFileValue
        return ConstantTensor(name, word.lower(), shape, (blob.fileName, int(blob.offset)))
    if not word.startswith(("FLOAT", "BFLOAT")) or not shape:
        return None
    return ConstantTensor(name, word.lower(), shape, None)


def _weights(constants: list[ConstantTensor]) -> tuple[WeightInfo, ...]:
    """Each stored tensor once, by name: functions share tensors at the same offset."""
    places: dict[object, ConstantTensor] = {}
    for each in constants:
        places.setdefault(each.place or (each.name, each.shape), each)
    return tuple(
        WeightInfo(each.name, each.dtype, each.shape, each.bytes)
        for each in sorted(places.values(), key=lambda each: (each.name, each.shape))
    )


def _op(operation: Any, origin: SourceMap, function: str) -> Op:
    source = origin.source(function, operation)
    return Op(
        name=name_of(operation),
        type=operation.type,
        inputs=tuple(
            argument.name
            for key in sorted(operation.inputs)
            for argument in operation.inputs[key].arguments
            if argument.HasField("name")
        ),
        outputs=tuple(value.name for value in operation.outputs),
        source=source,
        module=origin.modules.get(source) if source is not None else None,
    )
