"""What a package says it takes and gives: its description, and pixels as an image's tensor.

The program knows tensors; the description adds images, ranges of flexible shapes, the order of
inputs and outputs and the types that a caller sees. Core ML makes of an image planes of 0..255,
in the input's colour order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from coremltools.converters.mil.mil.types.symbolic import is_symbolic
from coremltools.proto.FeatureTypes_pb2 import ArrayFeatureType, ImageFeatureType

from edgeserve.backends.coreml.interpreter.plan_nodes import malformed
from edgeserve.backends.coreml.interpreter.values import NUMPY, dtype_name
from edgeserve.backends.coreml.spec import ARRAY_DTYPES
from edgeserve.errors import MilError
from edgeserve.types.tensors import DType, Shape, TensorSpec


def tensor_of_image(pixels: np.ndarray, space: str) -> np.ndarray:
    """Turn raw pixels into what a program takes for an image.

    Scale and bias of the image type are ops of the program itself, and are not applied here.

    Args:
        pixels: uint8, height x width x 3 in RGB order, or height x width for a grey image.
        space: The input's colour space: "RGB", "BGR", "GRAYSCALE" or "GRAYSCALE_FLOAT16".

    Returns:
        float32, 1 x channels x height x width, values 0 to 255.

    Raises:
        MilError: EDGE-MIL-007, the array has not the axes of such an image.
    """
    grey = space.startswith("GRAYSCALE")
    wanted = "height x width" if grey else "height x width x 3"
    if pixels.ndim != (2 if grey else 3) or (not grey and pixels.shape[2] != 3):
        got = f"shape {pixels.shape}"
        hint = "give the decoded pixels, or the tensor that the package takes"
        raise MilError("EDGE-MIL-007", "image", wanted=wanted, got=got, hint=hint)
    planes = pixels[None] if grey else pixels.transpose(2, 0, 1)
    planes = planes[::-1] if space == "BGR" else planes
    return np.ascontiguousarray(planes[None], dtype=np.float32)


@dataclass(frozen=True)
class Feature:
    """One input, output or state.

    Attributes:
        spec: As a caller sees it.
        image: Colour space of an image ("RGB", "BGR", "GRAYSCALE", ...), else None.
        shapes: The shapes allowed where they are enumerated; empty otherwise.
        ranges: Inclusive (low, high) of each dimension, high None where open; empty where fixed.
    """

    spec: TensorSpec
    image: str | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape fits."""
        fixed = self.spec.shape
        if len(shape) != len(fixed) or (self.shapes and shape not in self.shapes):
            return False
        if any(
            isinstance(want, int) and want != got for want, got in zip(fixed, shape, strict=True)
        ):
            return False
        pairs = zip(self.ranges, shape, strict=True) if self.ranges else ()
        return all(low <= got and (high is None or got <= high) for (low, high), got in pairs)


@dataclass(frozen=True)
class Interface:
    """All features of one function, in the package's order."""

    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    states: tuple[Feature, ...]


def describe(spec: Any, function: Any, name: str, package: str) -> Interface:
    """Bring a package's description and its program together.

    Args:
        spec: The protobuf ``Model``.
        function: The PyMIL ``Function``.
        name: The function's name.
        package: For errors.

    Raises:
        MilError: EDGE-MIL-005, the two do not fit each other.
    """
    description = spec.description
    for each in description.functions:
        if each.name == name:
            description = each
    given = dict(function.inputs)
    made = {var.name: var for var in function.outputs}
    wanted = {feature.name for feature in (*description.input, *description.state)}
    if wanted != set(given) or not {f.name for f in description.output} <= set(made):
        described = f"the described {sorted(wanted)} -> {[f.name for f in description.output]}"
        got = f"a program that takes {sorted(given)} and gives {sorted(made)}"
        raise malformed(package, described, got)
    return Interface(
        tuple(_feature(feature, given[feature.name]) for feature in description.input),
        tuple(_feature(feature, made[feature.name]) for feature in description.output),
        tuple(_feature(feature, given[feature.name]) for feature in description.state),
    )


def _feature(feature: Any, var: Any) -> Feature:
    """One feature, from its description and the program's variable."""
    kind = feature.type.WhichOneof("Type")
    if kind == "dictionaryType":  # class probabilities, given as one array
        return Feature(TensorSpec(feature.name, "float32", (f"{_word(feature.name)}_classes",)))
    if kind in ("stringType", "int64Type", "doubleType"):
        dtype: dict[str, DType] = {"stringType": "string", "int64Type": "int64"}
        return Feature(TensorSpec(feature.name, dtype.get(kind, "float64"), ()))
    shape = _shape(feature.name, var)
    if kind == "imageType":
        space = ImageFeatureType.ColorSpace.Name(feature.type.imageType.colorSpace)
        return Feature(TensorSpec(feature.name, "float32", shape), image=space)
    array = feature.type.stateType.arrayType if kind == "stateType" else feature.type.multiArrayType
    dtype_there = _array_dtype(array, var)
    spec = TensorSpec(feature.name, dtype_there, shape)
    shapes = tuple(tuple(map(int, each.shape)) for each in array.enumeratedShapes.shapes)
    return Feature(spec, shapes=shapes, ranges=_ranges(array, len(shape)))


def _array_dtype(array: Any, var: Any) -> DType:
    known = ArrayFeatureType.ArrayDataType.Name(array.dataType)
    plain: Any = NUMPY.get(dtype_name(var.dtype), "float32")
    found: DType = ARRAY_DTYPES.get(known, plain)
    return found


def _shape(name: str, var: Any) -> Shape:
    """The program's shape of a variable; a dynamic dimension gets a name of its own."""
    word = _word(name)
    return tuple(
        f"{word}_{axis}" if is_symbolic(size) else int(size) for axis, size in enumerate(var.shape)
    )


def _word(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return word if word[:1].isalpha() else f"d_{word}"


def _ranges(array: Any, rank: int) -> tuple[tuple[int, int | None], ...]:
    ranges = [
        (int(each.lowerBound), int(each.upperBound) if each.upperBound >= 0 else None)
        for each in array.shapeRange.sizeRanges
    ]
    return tuple(ranges) if len(ranges) == rank else ()


def check_feed(interface: Interface, feed: Mapping[str, np.ndarray]) -> None:
    """Compare a feed with what the function takes.

    Raises:
        MilError: EDGE-MIL-007, a name, dtype or shape is not what it takes.
    """
    names = [feature.spec.name for feature in interface.inputs]
    if set(feed) != set(names):
        raise _unfit("feed", f"inputs {names}", f"inputs {sorted(feed)}")
    for feature in interface.inputs:
        array, spec = feed[feature.spec.name], feature.spec
        if not isinstance(array, np.ndarray) or array.dtype.name != spec.dtype:
            got = array.dtype.name if isinstance(array, np.ndarray) else type(array).__name__
            raise _unfit(f"input {spec.name!r}", spec.dtype, got)
        if not feature.admits(array.shape):
            allowed = feature.shapes or feature.ranges or spec.shape
            raise _unfit(f"input {spec.name!r}", f"shape {list(allowed)}", str(array.shape))


def _unfit(thing: str, wanted: str, got: str) -> MilError:
    hint = "give the tensors that the package takes, as `edgeserve inspect` shows them"
    return MilError("EDGE-MIL-007", thing, wanted=wanted, got=got, hint=hint)
