"""Conversion between types, and the label of a classifier."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel

__all__ = ["cast", "classify"]

#: Integer types of the program by bits and sign; the others need no care here.
_BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}


@kernel("cast")
def cast(x: Tensor, dtype: str) -> Tensor:
    """Convert to another type; the executor rounds to float16 where the program says so.

    A float becomes an integer by dropping its fraction. What an integer type cannot hold is
    undefined by contract; here narrow types keep the low bits, as two's complement does.
    """
    if dtype == "bool":
        return x != 0
    if dtype in ("fp16", "fp32", "fp64"):
        return x.to(torch.float32)
    whole = x.to(torch.int64 if not x.is_floating_point() else torch.int32)
    if dtype in _BITS:
        return torch.from_numpy(whole.numpy().astype(dtype).astype(np.int32))
    return whole


@kernel("classify")
def classify(probabilities: Tensor, classes: list[str | int]) -> tuple[np.ndarray, Tensor]:
    """The class of the largest probability, and all probabilities in the order of the classes."""
    flat = probabilities.reshape(-1)
    return np.asarray(classes[int(flat.argmax())]), flat
