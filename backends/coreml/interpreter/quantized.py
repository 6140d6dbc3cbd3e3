"""Linear quantization inside a program: values to 8 bits and back."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import integer

__all__ = ["along", "dequantize", "quantize"]

_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def along(parameter: Tensor, rank: int, axis: Tensor | int | None) -> Tensor:
    """A vector of one value for each place of an axis, shaped to be broadcast; scalars stay."""
    if parameter.dim() != 1 or axis is None:
        return parameter
    shape = [1] * rank
    shape[integer(axis)] = -1
    return parameter.reshape(shape)


@kernel("quantize")
def quantize(
    input: Tensor,
    scale: Tensor,
    output_dtype: str,
    zero_point: Tensor | None = None,
    axis: Tensor | None = None,
) -> Tensor:
    """``clip(round(input / scale) + zero_point)``; halves are rounded to even."""
    low, high = _RANGES[output_dtype]
    found = torch.round(input / along(scale, input.dim(), axis))
    if zero_point is not None:
        found = found + along(zero_point, input.dim(), axis).float()
    return found.clamp(low, high)


@kernel("dequantize", "constexpr_affine_dequantize")
def dequantize(
    scale: Tensor,
    input: Tensor | None = None,
    zero_point: Tensor | None = None,
    axis: Tensor | None = None,
    quantized_data: Tensor | None = None,
) -> Tensor:
    """``scale * (input - zero_point)``, in float32."""
    data = input if input is not None else quantized_data
    assert data is not None
    found = data.float()
    if zero_point is not None:
        found = found - along(zero_point, data.dim(), axis).float()
    return found * along(scale, data.dim(), axis)
