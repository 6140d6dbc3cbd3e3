"""Tensors as callers see them (`Signature`) and as a file takes them (`IO`)."""

from __future__ import annotations

import math
import re
from typing import Literal, get_args

from edgeserve.types.base import UNSET, UnsetType, Value, or_default

DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "string",
]
DTYPES: tuple[str, ...] = get_args(DType)

#: A dimension is a fixed size or the name of a dynamic one.
Shape = tuple[int | str, ...]

_DIM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TensorSpec(Value, frozen=True):
    """Name, dtype and shape of one tensor; a string in ``shape`` names a dynamic dimension."""

    name: str
    dtype: DType
    shape: Shape

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a tensor needs a name")
        for dim in self.shape:
            if isinstance(dim, int) and dim < 0:
                raise ValueError(f"tensor {self.name!r}: dimension {dim} is negative")
            if isinstance(dim, str) and not _DIM_NAME.fullmatch(dim):
                raise ValueError(f"tensor {self.name!r}: {dim!r} is not a dimension name")


def _check_names(kind: str, specs: tuple[TensorSpec, ...]) -> None:
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise ValueError(f"{kind} names are not unique: {names}")


class Signature(Value, frozen=True):
    """The source's signature, the one shown to callers.

    Attributes:
        inputs: In the order of the source.
        outputs: In the order of the source.
        dims: Inclusive range of each dynamic dimension, by name.
        padded: Those of them in which zeros at the end of an input change no answer before them, as
            was tried on the source: files of fixed sizes take smaller inputs filled up.
        nonempty: Inputs for which that, and a text's padding, was seen not to hold where a row is
            all zeros (a mask that hides every place): such a row is never filled up.
        states: Names of the model's states that a call reads and writes
            (`edgeserve.types.manifest.ModelState`); they are not among inputs and outputs.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: dict[str, tuple[int, int]] = {}
    padded: tuple[str, ...] = ()
    nonempty: tuple[str, ...] = ()
    states: tuple[str, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_names("input", self.inputs)
        _check_names("output", self.outputs)
        used = {d for spec in self.inputs for d in spec.shape if isinstance(d, str)}
        if missing := used - set(self.dims):
            raise ValueError(f"dynamic dimensions without a range: {sorted(missing)}")
        for name, (low, high) in self.dims.items():
            if not 0 <= low <= high:
                raise ValueError(f"dimension {name!r} has the impossible range [{low}, {high}]")
        if unknown := set(self.padded) - set(self.dims):
            raise ValueError(f"padded dimensions that are not dynamic: {sorted(unknown)}")
        if unknown := set(self.nonempty) - {spec.name for spec in self.inputs}:
            raise ValueError(f"inputs that may not be empty and are not there: {sorted(unknown)}")
        if len(set(states := or_default(self.states, ()))) != len(states):
            raise ValueError(f"states are named twice: {states}")

    def input(self, name: str) -> TensorSpec:
        """Look up an input by name (KeyError if there is none)."""
        return {spec.name: spec for spec in self.inputs}[name]

    def output(self, name: str) -> TensorSpec:
        """Look up an output by name (KeyError if there is none)."""
        return {spec.name: spec for spec in self.outputs}[name]

    @property
    def batch_dim(self) -> str | None:
        """Name of the dynamic first dimension that all inputs and outputs share, or None."""
        first = {spec.shape[0] if spec.shape else 0 for spec in (*self.inputs, *self.outputs)}
        only = first.pop() if len(first) == 1 else None
        return only if isinstance(only, str) else None


class ImageInput(Value, frozen=True):
    """An input of a file that takes an image of 8-bit levels and normalises it inside.

    The signature's value of a pixel is ``level * scale + bias`` of the pixel's channel, so a caller
    feeds the levels that the image steps give and leaves ``normalize`` out.

    Attributes:
        color: Order of the channels, which are the last axis.
        scale: One number a channel, in that order.
        bias: Likewise.
    """

    color: Literal["rgb", "bgr", "gray"]
    scale: tuple[float, ...]
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        channels = 1 if self.color == "gray" else 3
        if not len(self.scale) == len(self.bias) == channels:
            raise ValueError(f"a {self.color} image needs {channels} scales and as many biases")
        if not all(math.isfinite(x) for x in (*self.scale, *self.bias)) or 0 in self.scale:
            raise ValueError("scales and biases of an image are finite, and no scale is 0")


class StateTensors(Value, frozen=True):
    """How a file keeps a state from one call to the next.

    Either the runtime holds it (``held``), or the caller feeds ``input`` with what ``output`` gave
    in the call before.

    Attributes:
        held: The state's name inside the file.
        input: The tensor that takes the state.
        output: The tensor that gives the state as it is after the call.
    """

    held: str | None = None
    input: TensorSpec | None = None
    output: TensorSpec | None = None

    def __post_init__(self) -> None:
        fed = (self.input is not None, self.output is not None)
        if fed not in ((False, False), (True, True)) or (self.held is None) != fed[0]:
            raise ValueError("a state is held by the runtime, or has an input and an output")


class IO(Value, frozen=True):
    """What an artifact's file itself takes and gives, in the order of the source's inputs.

    Attributes:
        inputs: May differ from the source's in dtype (int32 ids, int8), never in order.
        outputs: Likewise.
        signature: Which of the file's signatures is meant, where it has several; None: its only
        one.
        layouts: For each tensor of the file, by name, whose axes stand in another order: axis i of
            the file's tensor is axis ``layouts[name][i]`` of the signature's.
        images: The inputs, by name, that take images of 8-bit levels.
        states: How the file keeps each state of the signature.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    signature: str | None = None
    layouts: dict[str, tuple[int, ...]] | UnsetType = UNSET
    images: dict[str, ImageInput] | UnsetType = UNSET
    states: dict[str, StateTensors] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_names("input", self.inputs)
        _check_names("output", self.outputs)
        ranks = {spec.name: len(spec.shape) for spec in (*self.outputs, *self.inputs)}
        for name, axes in or_default(self.layouts, {}).items():
            if sorted(axes) != list(range(ranks.get(name, -1))):
                raise ValueError(f"layout {list(axes)} does not order the axes of {name!r}")
        for name, image in or_default(self.images, {}).items():
            spec = next((spec for spec in self.inputs if spec.name == name), None)
            if spec is None or spec.dtype != "uint8" or len(spec.shape) != 4:
                raise ValueError(f"image {name!r} is not an input of uint8 with four axes")
            if spec.shape[3] != len(image.scale):
                channels = f"{image.color} channels"
                raise ValueError(f"the last axis of image {name!r} is not its {channels}")
