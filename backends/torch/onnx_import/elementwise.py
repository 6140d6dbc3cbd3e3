"""Element by element: arithmetic, comparisons, rounding, types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op, register_functions

#: Operators that PyTorch calls by the same name.
_SAME_NAME = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Reciprocal Round "
    "Sign Sin Sinh Sqrt Tan IsNaN Add Sub Mul Where"
).split()
_OTHER_NAME: dict[str, Callable[..., Tensor]] = {
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
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
    "Max": lambda *parts: functools.reduce(torch.maximum, parts),
    "Min": lambda *parts: functools.reduce(torch.minimum, parts),
    "Sum": lambda *parts: functools.reduce(torch.add, parts),
    "Mean": lambda *parts: functools.reduce(torch.add, parts) / len(parts),
    "Identity": lambda x: x,
    "CastLike": lambda x, like: x.to(like.dtype),
}

register_functions({name: getattr(torch, name.lower()) for name in _SAME_NAME} | _OTHER_NAME)


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


@op("Dropout", host=(1, 2))
def _dropout(node: OnnxNode, x: Tensor, *_: Tensor) -> Any:
    if node.has(2) and node.known(2).reshape(-1)[0]:
        raise node.refuse("training mode")
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.wants(1) else x


@op("Cast")
def _cast(node: OnnxNode, x: Tensor) -> Tensor:
    return x.to(torch_dtype(node, int(node.get("to"))))


def torch_dtype(node: OnnxNode, kind: int) -> torch.dtype:
    """PyTorch's type for one of ONNX."""
    import onnx

    try:
        array = np.empty(0, onnx.helper.tensor_dtype_to_np_dtype(kind))
        return torch.from_numpy(array).dtype
    except (KeyError, TypeError, ValueError) as error:
        word = onnx.TensorProto.DataType.Name(kind).lower()
        raise node.refuse(f"{word} is no type of PyTorch") from error
