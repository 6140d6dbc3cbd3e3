"""ONNX activations in PyTorch: Relu to Softmax, whose axes depend on the opset."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import (
    OnnxNode,
    op,
    register_functions,
    register_nodes,
)

#: Up to this operator set softmax runs over all axes from the named one on.
_COERCED = 12

register_functions(
    {
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Softplus": functional.softplus,
        "Softsign": functional.softsign,
        "Mish": functional.mish,
        "HardSwish": functional.hardswish,
        "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    }
)
register_nodes(
    {
        "LeakyRelu": lambda node, x: functional.leaky_relu(x, node.get("alpha", 0.01)),
        "Elu": lambda node, x: functional.elu(x, node.get("alpha", 1.0)),
        "Celu": lambda node, x: functional.celu(x, node.get("alpha", 1.0)),
        "Gelu": lambda node, x: functional.gelu(x, approximate=node.get("approximate", "none")),
        "HardSigmoid": lambda node, x: torch.clamp(
            x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0.0, 1.0
        ),
        "ThresholdedRelu": lambda node, x: torch.where(
            x > node.get("alpha", 1.0), x, torch.zeros_like(x)
        ),
    }
)


@op("Selu")
def _selu(node: OnnxNode, x: Tensor) -> Tensor:
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    low = torch.clamp(alpha * (torch.exp(x) - 1), max=0)
    return torch.mul(torch.clamp(x, min=0) + low, gamma)


@op("Shrink")
def _shrink(node: OnnxNode, x: Tensor) -> Tensor:
    bias, edge = node.get("bias", 0.0), node.get("lambd", 0.5)
    zeros = torch.zeros_like(x)
    return torch.where(x < -edge, x + bias, torch.where(x > edge, x - bias, zeros)).to(x.dtype)


@op("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: OnnxNode, x: Tensor) -> Tensor:
    if node.opset > _COERCED:
        return _over(node.op, x, int(node.get("axis", -1)))
    axis = int(node.get("axis", 1)) % max(x.ndim, 1)
    rows = math.prod(x.shape[:axis])
    return _over(node.op, x.reshape(rows, -1), 1).reshape(x.shape)


def _over(word: str, x: Tensor, axis: int) -> Tensor:
    if word == "Softmax":
        return torch.softmax(x, axis)
    if word == "LogSoftmax":
        return torch.log_softmax(x, axis)
    best = x.argmax(axis, keepdim=True)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return (torch.arange(x.shape[axis]).reshape(shape) == best).to(x.dtype)
