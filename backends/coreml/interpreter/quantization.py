"""Linear quantization inside a program, and weights that a package stores compressed.

Values to 8 bits and back. Compressed weights are lookup tables, bit masks and blocks of scales.
All of them have constant inputs, so the plan computes them once, when the package is loaded.
What a device does with them (decompress at load, or inside the matrix product) gives the same
values.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Int, integer, ints

_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def along(parameter: Tensor, rank: int, axis: Int | None) -> Tensor:
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


def unpacked(packed: Tensor, bits: int, count: int) -> Tensor:
    """Numbers of a few bits from bytes, lowest bit first, running across byte borders."""
    stream = np.unpackbits(packed.numpy().astype(np.uint8), bitorder="little")
    found = np.zeros(count, dtype=np.uint8)
    for bit in range(bits):
        found |= stream[bit : count * bits : bits] << bit
    return torch.from_numpy(found)


@kernel("constexpr_cast")
def constexpr_cast(source_val: Tensor, output_dtype: str) -> Tensor:
    """float16 to float32, which changes no value."""
    return source_val


@kernel("constexpr_lut_to_dense")
def lut_to_dense_flat(indices: Tensor, lut: Tensor, shape: Tensor) -> Tensor:
    """Up to iOS 17: packed indices into one table of 2 to 256 values."""
    sizes = ints(shape)
    bits = int(math.log2(lut.numel()))
    return lut[unpacked(indices, bits, math.prod(sizes)).int()].reshape(sizes)


@kernel("constexpr_lut_to_dense", since="ios18")
def lut_to_dense(indices: Tensor, lut: Tensor, vector_axis: Tensor | None = None) -> Tensor:
    """From iOS 18 on: a table for each block of indices, whose entries are values or vectors.

    The table has the axes of ``indices`` (each counting blocks), then entries, then the vector;
    the elements of a vector lie one after another along ``vector_axis``.
    """
    rank = indices.dim()
    blocks = lut.shape[:rank]
    places = []
    for axis, (size, count) in enumerate(zip(indices.shape, blocks, strict=True)):
        block = torch.arange(size) // (size // count)
        places.append(block.reshape([-1 if i == axis else 1 for i in range(rank)]))
    found = lut[(*places, indices.long())]  # the axes of indices, then the vector
    if found.shape[-1] == 1:
        return found.squeeze(-1)
    assert vector_axis is not None
    at = integer(vector_axis) % rank
    return found.movedim(-1, at + 1).flatten(at, at + 1)


@kernel("constexpr_sparse_to_dense")
def sparse_to_dense_flat(nonzero_data: Tensor, mask: Tensor, shape: Tensor) -> Tensor:
    """Up to iOS 17: a packed mask of one bit for each element; where it is 0, the element is 0."""
    sizes = ints(shape)
    return _spread(nonzero_data, unpacked(mask, 1, math.prod(sizes)).reshape(sizes))


@kernel("constexpr_sparse_to_dense", since="ios18")
def sparse_to_dense(nonzero_data: Tensor, mask: Tensor) -> Tensor:
    """From iOS 18 on: the mask has the shape of the result."""
    return _spread(nonzero_data, mask)


@kernel("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(data: Tensor, scale: Tensor, offset: Tensor | None = None) -> Tensor:
    """``scale * (data - offset)``; each scale serves a block, whose sizes the shapes tell."""
    found = data.float()
    if offset is not None:
        found = found - _over_blocks(offset.float(), data.shape)
    return found * _over_blocks(scale, data.shape)


@kernel("constexpr_lut_to_sparse")
def lut_to_sparse(
    indices_mask: Tensor,
    indices_nonzero_data: Tensor,
    lut: Tensor,
    vector_axis: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Look up only the elements that the mask keeps; gives the mask and the values."""
    dense = lut_to_dense(_spread(indices_nonzero_data, indices_mask), lut, vector_axis)
    mask = indices_mask
    if lut.shape[-1] > 1:
        assert vector_axis is not None
        mask = mask.repeat_interleave(lut.shape[-1], integer(vector_axis))
    return mask, dense[mask != 0]


@kernel("constexpr_sparse_blockwise_shift_scale")
def sparse_blockwise_shift_scale(
    data_mask: Tensor, nonzero_data: Tensor, scale: Tensor, offset: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scale only the elements that the mask keeps; gives the mask and the values."""
    dense = blockwise_shift_scale(_spread(nonzero_data, data_mask), scale, offset)
    return data_mask, dense[data_mask != 0]


def _spread(kept: Tensor, mask: Tensor) -> Tensor:
    """The kept elements at the places of the mask, in row-major order, zeros elsewhere."""
    dense = torch.zeros(mask.shape, dtype=kept.dtype)
    dense[mask != 0] = kept
    return dense


def _over_blocks(parameter: Tensor, shape: torch.Size) -> Tensor:
    """Repeat a value for each block until it has one for each element."""
    for axis, (size, count) in enumerate(zip(shape, parameter.shape, strict=True)):
        if 1 < count < size:
            parameter = parameter.repeat_interleave(size // count, axis)
    return parameter
