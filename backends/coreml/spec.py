"""The protobuf message of a Core ML package: reading it, and its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from edgeserve.backends.coreml.coremltools_import import coremltools
from edgeserve.errors import BackendError
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO, DType, TensorSpec
from edgeserve.user_lines import one_line

#: Where things lie in a package, as coremltools and Xcode have it.
DATA = "Data"
MODEL = "com.apple.CoreML/model.mlmodel"
WEIGHTS = "com.apple.CoreML/weights"

#: ``ArrayFeatureType.ArrayDataType`` of Core ML's ``FeatureTypes.proto``.
_DTYPES: dict[str, DType] = {
    "FLOAT16": "float16",
    "FLOAT32": "float32",
    "DOUBLE": "float64",
    "INT32": "int32",
    "INT8": "int8",
}


def read_spec(artifact: Artifact, root: Path) -> Any:
    """The package's ``Model`` message, which holds an ML program.

    Raises:
        BackendError: EDGE-BACKEND-012.
    """
    spec = coremltools().proto.Model_pb2.Model()
    try:
        spec.ParseFromString((root / artifact.entry / DATA / MODEL).read_bytes())
    except Exception as error:  # OSError, and what protobuf raises of its own
        raise _unreadable(artifact.entry, one_line(error)) from error
    if (kind := spec.WhichOneof("Type")) != "mlProgram":
        raise _unreadable(artifact.entry, f"a package that holds {kind or 'nothing'}")
    return spec


def _unreadable(entry: str, got: str) -> BackendError:
    return BackendError(
        "EDGE-BACKEND-012",
        f"package {entry!r}",
        wanted="a Core ML package with an ML program",
        got=got,
        hint="make the artifact again from its source",
    )


def signatures(spec: Any) -> tuple[IO, ...]:
    """The inputs and outputs of each function of a package, in the package's order.

    A package with one function has one signature without a name. An image is uint8 of shape [1,
    height, width, 3] (or 1), whatever layout the program has.

    Raises:
        BackendError: EDGE-BACKEND-017, an input or output is neither a tensor nor an image.
    """
    description = spec.description
    if not description.functions:
        return (_io(description.input, description.output, None),)
    return tuple(_io(each.input, each.output, each.name) for each in description.functions)


def _io(inputs: Iterable[Any], outputs: Iterable[Any], signature: str | None) -> IO:
    return IO(
        inputs=tuple(_feature(each) for each in inputs),
        outputs=tuple(_feature(each) for each in outputs),
        signature=signature,
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
    if word not in _DTYPES:
        raise BackendError(
            "EDGE-BACKEND-017",
            f"tensor {feature.name!r}",
            wanted=f"a dtype among {sorted(_DTYPES.values())}",
            got=word.lower(),
            hint="keep the model's inputs and outputs in float32 or int32",
        )
    shape = tuple(int(size) for size in array.shape)
    return TensorSpec(name=feature.name, dtype=_DTYPES[word], shape=shape)


def block_of(function: Any) -> Any:
    """A function's block of operations in the operator set that it asks for."""
    return function.block_specializations[function.opset]


def operations_of(block: Any) -> Iterator[Any]:
    """All operations of a block in order; those of inner blocks follow the one that holds them."""
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from operations_of(inner)


def name_of(operation: Any) -> str:
    """The name that an operation itself has, beside those of its outputs."""
    if "name" not in operation.attributes:
        return ""
    return str(operation.attributes["name"].immediateValue.tensor.strings.values[0])
