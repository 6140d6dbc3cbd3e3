"""Values of a MIL program as torch tensors: the types, and the small conversions kernels need.

Every floating type is held as float32. Integers narrower than 16 bits are held as int8 or uint8,
uint16 as int32 and uint32 as int64, because torch computes little in unsigned types; the values
are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

#: What a kernel gets for one number, whole number or truth value: the program's, or its default.
Float = Tensor | float
Int = Tensor | int
Bool = Tensor | bool

#: How torch holds each MIL type, by coremltools' name of the type.
TORCH: dict[str, torch.dtype] = {
    **dict.fromkeys(("fp16", "fp32", "fp64"), torch.float32),
    **dict.fromkeys(("uint1", "uint2", "uint3", "uint4", "uint6", "uint8"), torch.uint8),
    "bool": torch.bool,
    "int4": torch.int8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint16": torch.int32,
    "uint32": torch.int64,
    "uint64": torch.int64,
}

#: What a caller gets and gives for each MIL type.
NUMPY: dict[str, str] = {
    name: name.replace("fp", "float")
    for name in "fp16 fp32 fp64 bool int8 int16 int32 int64 uint8 uint16 uint32 string".split()
}


def dtype_name(builtin: Any) -> str:
    """The name that coremltools gives a scalar type: "fp16", "string", ..."""
    from coremltools.converters.mil.mil import types

    return str(types.builtin_to_string(builtin) or "unknown")


def held_as(builtin: Any) -> torch.dtype | None:
    """The torch dtype that holds a MIL scalar type; None for strings and lists."""
    return TORCH.get(dtype_name(builtin))


def tensor_of(value: Any, builtin: Any) -> Tensor:
    """A constant's numpy value as a contiguous tensor of the dtype that holds its type."""
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    target = held_as(builtin)
    wide = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}.get(array.dtype.name)
    if wide is not None:
        array = array.astype(wide)
    if not array.flags.writeable:  # torch warns of a tensor over memory it must not write
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor if target is None else tensor.to(target)


def ints(value: Int) -> list[int]:
    """An integer tensor of rank 0 or 1 as a list of ints."""
    found = value.tolist() if isinstance(value, Tensor) else value
    return [int(each) for each in found] if isinstance(found, list) else [int(found)]


def integer(value: Int) -> int:
    """A tensor of one element as an int."""
    return int(value.item()) if isinstance(value, Tensor) else int(value)


def number(value: Float) -> float:
    """A tensor of one element as a float."""
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def truth(value: Bool) -> bool:
    """A tensor of one element as a bool."""
    return bool(value.item()) if isinstance(value, Tensor) else bool(value)
