"""The protobuf message of a Core ML package: reading it, and its inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeserve.backends.checks import unreadable, unsupported_dtype
from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO, DType, TensorSpec
from edgeserve.user_lines import one_line

#: Where things lie in a package, as coremltools and Xcode have it.
DATA = "Data"
MODEL = "com.apple.CoreML/model.mlmodel"
WEIGHTS = "com.apple.CoreML/weights"

#: ``ArrayFeatureType.ArrayDataType`` of Core ML's ``FeatureTypes.proto``.
ARRAY_DTYPES: dict[str, DType] = {
    "FLOAT16": "float16",
    "FLOAT32": "float32",
    "DOUBLE": "float64",
    "INT32": "int32",
    "INT8": "int8",
}


_MIL_DTYPE = re.compile(r"(?:B?FLOAT|U?INT)(\d+)")


def dtype_of(tensor: Any) -> str:
    """The name of the data type of a MIL ``TensorType`` message ("FLOAT16")."""
    numbers = tensor.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_number
    return str(numbers[tensor.dataType].name)


def bits_of(dtype: str, default: int = 0) -> int:
    """Bits of one element of a data type of MIL, by its name; ``default`` for what is no number."""
    found = _MIL_DTYPE.fullmatch(dtype)
    return int(found[1]) if found else 8 if dtype == "BOOL" else default


def read_spec(artifact: Artifact, root: Path) -> Any:
    """The package's ``Model`` message, which holds an ML program.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    spec, wanted = coremltools().proto.Model_pb2.Model(), "a Core ML package with an ML program"
    try:
        spec.ParseFromString((root / artifact.entry / DATA / MODEL).read_bytes())
    except Exception as error:  # OSError, and what protobuf raises of its own
        raise unreadable(f"package {artifact.entry!r}", wanted, one_line(error)) from error
    if (kind := spec.WhichOneof("Type")) != "mlProgram":
        got = f"a package that holds {kind or 'nothing'}"
        raise unreadable(f"package {artifact.entry!r}", wanted, got)
    return spec


def signatures(spec: Any) -> tuple[IO, ...]:
    """The inputs and outputs of each function of a package, in the package's order.

    A package with one function has one signature without a name. An image is uint8 of shape [1,
    height, width, 3] (or 1), whatever layout the program has.

    Raises:
        BackendError: EDGE-BACKEND-017, an input or output is neither a tensor nor an image.
    """
    described = [(each, each.name) for each in spec.description.functions]
    return tuple(
        IO(
            inputs=tuple(map(_feature, each.input)),
            outputs=tuple(map(_feature, each.output)),
            signature=name,
        )
        for each, name in described or [(spec.description, None)]
    )


def _feature(feature: Any) -> TensorSpec:
    kind = feature.type.WhichOneof("Type")
    if kind == "imageType":
        image = feature.type.imageType
        gray = image.colorSpace == image.GRAYSCALE
        size = (1, int(image.height), int(image.width), 1 if gray else 3)
        return TensorSpec(name=feature.name, dtype="uint8", shape=size)
    array = feature.type.multiArrayType
    word = array.ArrayDataType.Name(array.dataType) if kind == "multiArrayType" else str(kind)
    if word not in ARRAY_DTYPES:
        hint = "keep the model's inputs and outputs in float32 or int32"
        raise unsupported_dtype(feature.name, sorted(ARRAY_DTYPES.values()), word.lower(), hint)
    shape = tuple(int(size) for size in array.shape)
    return TensorSpec(name=feature.name, dtype=ARRAY_DTYPES[word], shape=shape)


def block_of(function: Any) -> Any:
    """A function's block of operations in the operator set that it asks for."""
    return function.block_specializations[function.opset]


def operations_of(block: Any) -> Iterator[Any]:
    """All operations of a block in order; those of inner blocks follow the one that holds them."""
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from operations_of(inner)


def is_constant(operation: Any) -> bool:
    """Whether an operation only holds a constant, stored as it is or compressed."""
    return operation.type == "const" or bool(operation.type.startswith("constexpr_"))


def name_of(operation: Any) -> str:
    """The name that an operation itself has, beside those of its outputs."""
    if "name" not in operation.attributes:
        return ""
    return str(operation.attributes["name"].immediateValue.tensor.strings.values[0])
