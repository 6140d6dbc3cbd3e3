"""Normalisation over channels, samples and layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.torch.onnx_import.table import OnnxNode, op

#: From this operator set on a group norm has a scale for each channel, before one for each group.
_PER_CHANNEL = 21


@op("BatchNormalization")
def _batch_norm(
    node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    if node.get("training_mode", 0) or node.wants(1):
        raise node.refuse("training mode")
    epsilon = node.get("epsilon", 1e-5)
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


@op("InstanceNormalization")
def _instance_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    epsilon = node.get("epsilon", 1e-5)
    return functional.group_norm(x, x.shape[1], scale, bias, epsilon)


@op("GroupNormalization")
def _group_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = int(node.get("num_groups"))
    if node.opset < _PER_CHANNEL:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@op("LayerNormalization")
def _layer_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    axis, epsilon = int(node.get("axis", -1)) % x.ndim, node.get("epsilon", 1e-5)
    shape = list(x.shape[axis:])
    if node.wants(1) or node.wants(2):
        return _with_moments(x, scale, bias, list(range(axis, x.ndim)), epsilon)
    if list(scale.shape) != shape or (bias is not None and list(bias.shape) != shape):
        made = functional.layer_norm(x, shape, None, None, epsilon) * scale
        return made if bias is None else made + bias
    return functional.layer_norm(x, shape, scale, bias, epsilon)


def _with_moments(
    x: Tensor, scale: Tensor, bias: Tensor | None, axes: list[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer, the mean, and one by the deviation."""
    mean = x.mean(axes, keepdim=True)
    centered = x - mean
    inverse = torch.rsqrt((centered * centered).mean(axes, keepdim=True) + epsilon)
    made = centered * inverse * scale
    return made if bias is None else made + bias, mean, inverse


@op("RMSNormalization")
def _rms_norm(node: OnnxNode, x: Tensor, scale: Tensor) -> Tensor:
    axis = int(node.get("axis", -1)) % x.ndim
    mean = (x * x).mean(list(range(axis, x.ndim)), keepdim=True)
    return x * torch.rsqrt(mean + node.get("epsilon", 1e-5)) * scale


@op("LpNormalization")
def _lp_norm(node: OnnxNode, x: Tensor) -> Tensor:
    axis, power = int(node.get("axis", -1)), int(node.get("p", 2))
    size = x.abs() if power == 1 else x * x
    total = size.sum(axis, keepdim=True)
    total = total if power == 1 else torch.sqrt(total)
    return torch.where(total == 0, torch.zeros_like(x), x / total)


@op("LRN")
def _local_response(node: OnnxNode, x: Tensor) -> Tensor:
    """The channels around each one, as many below as above (one more above where even)."""
    size = int(node.get("size"))
    below, above = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = functional.pad(x * x, [0, 0] * (x.ndim - 2) + [below, above])
    parts = [squares.narrow(1, i, x.shape[1]) for i in range(size)]
    total = torch.stack(parts).sum(0)
    base = node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * total
    return x / torch.pow(base, float(node.get("beta", 0.75)))


@op("MeanVarianceNormalization")
def _mean_variance(node: OnnxNode, x: Tensor) -> Tensor:
    axes = [int(n) for n in node.get("axes") or (0, 2, 3)]
    mean = x.mean(axes, keepdim=True)
    variance = (x * x).mean(axes, keepdim=True) - mean * mean
    return (x - mean) / (torch.sqrt(variance) + 1e-9)
