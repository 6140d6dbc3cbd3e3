"""Element by element: arithmetic, comparisons, rounding, types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op, register_functions

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Log": torch.log,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "IsNaN": torch.isnan,
    "BitwiseNot": torch.bitwise_not,
}

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}


register_functions(_UNARY)
register_functions(_BINARY)


@op("Div")
def _div(node: OnnxNode, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_floating_point:
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


@op("Pow")
def _pow(node: OnnxNode, a: Tensor, b: Tensor) -> Tensor:
    """In the type of the base; a constant exponent stays a number, which converters know better."""
    if (found := node.constants.get(1)) is not None and found.size == 1:
        number = float(found.reshape(-1)[0])
        made = a.pow(int(number) if number.is_integer() else number)
        shape = np.broadcast_shapes(tuple(a.shape), found.shape)
        return made.to(a.dtype).reshape(shape)
    return torch.pow(a, b).to(a.dtype)


@op("Mod")
def _mod(node: OnnxNode, a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, b) if node.get("fmod", 0) else torch.remainder(a, b)


@op("Max")
def _max(node: OnnxNode, *parts: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, parts)


@op("Min")
def _min(node: OnnxNode, *parts: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, parts)


@op("Sum")
def _sum(node: OnnxNode, *parts: Tensor) -> Tensor:
    return functools.reduce(torch.add, parts)


@op("Mean")
def _mean(node: OnnxNode, *parts: Tensor) -> Tensor:
    return functools.reduce(torch.add, parts) / len(parts)


@op("IsInf")
def _is_inf(node: OnnxNode, x: Tensor) -> Tensor:
    found = torch.zeros_like(x, dtype=torch.bool)
    if node.get("detect_positive", 1):
        found = found | (x == float("inf"))
    return found | (x == float("-inf")) if node.get("detect_negative", 1) else found


@op("Clip", host=(1, 2))
def _clip(node: OnnxNode, x: Tensor, *_: Tensor) -> Tensor:
    """Limits are attributes up to operator set 10, inputs later; a lower one that is too high."""
    low, high = (_limit(node, *at) for at in ((1, "min"), (2, "max")))
    if low is None and high is None:
        return x
    return torch.clamp(x, low, high)


def _limit(node: OnnxNode, position: int, name: str) -> Any:
    if node.has(position):
        return node.known(position).reshape(-1)[0].item()
    return node.get(name)


@op("Where")
def _where(node: OnnxNode, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@op("Identity")
def _identity(node: OnnxNode, x: Tensor) -> Tensor:
    return x


@op("Dropout", host=(1, 2))
def _dropout(node: OnnxNode, x: Tensor, *_: Tensor) -> Any:
    if node.has(2) and node.known(2).reshape(-1)[0]:
        raise node.refuse("training mode")
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.wants(1) else x


@op("Cast")
def _cast(node: OnnxNode, x: Tensor) -> Tensor:
    return x.to(torch_dtype(node, int(node.get("to"))))


@op("CastLike")
def _cast_like(node: OnnxNode, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def torch_dtype(node: OnnxNode, kind: int) -> torch.dtype:
    """PyTorch's type for one of ONNX."""
    import onnx

    try:
        array = np.empty(0, onnx.helper.tensor_dtype_to_np_dtype(kind))
        return torch.from_numpy(array).dtype
    except (KeyError, TypeError, ValueError) as error:
        word = onnx.TensorProto.DataType.Name(kind).lower()
        raise node.refuse(f"{word} is no type of PyTorch") from error
