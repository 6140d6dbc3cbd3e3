"""Products of matrices, and scaled dot-product attention as one op (from iOS 18)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel
from edgeserve.backends.coreml.interpreter.values import Bool, truth


@kernel("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: [..., D_in], float or int32.
        weight: [D_out, D_in].
        bias: [D_out].
    """
    return functional.linear(x, weight, bias)


@kernel("matmul")
def matmul(x: Tensor, y: Tensor, transpose_x: Bool = False, transpose_y: Bool = False) -> Tensor:
    """``x @ y`` as in numpy: leading axes broadcast, a vector is a row or a column.

    Args:
        x: [..., M, K] or [K], float or int32; of two types the wider one is taken.
        y: [..., K, N] or [K].
        transpose_x: Swap the last two axes of ``x`` first; nothing for a vector.
        transpose_y: The same for ``y``.
    """
    common = torch.promote_types(x.dtype, y.dtype)
    return torch.matmul(
        _transposed(x.to(common), transpose_x), _transposed(y.to(common), transpose_y)
    )


@kernel("einsum")
def einsum(values: list[Tensor], equation: str) -> Tensor:
    """A sum of products by the letters of ``equation``; an axis of size 1 is stretched.

    Core ML takes two tensors of one rank, as "nchw,nwhu->nchu" or "chw,whr->chr".
    """
    return torch.einsum(equation, *values)


def _transposed(x: Tensor, turn: Bool) -> Tensor:
    return x.mT if truth(turn) and x.ndim > 1 else x


@kernel("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """``softmax(query @ key.T / sqrt(E) + mask) @ value``.

    Args:
        query: [B, ..., L, E].
        key: [B, ..., S, E].
        value: [B, ..., S, EV].
        attn_mask: Broadcasts to [B, ..., L, S]. A boolean one says who is seen, a float one is
            added to the scores. A row that sees nobody is NaN, as the formula has it (PyTorch's
            own kernels give 0 there).

    Returns:
        [B, ..., L, EV].
    """
    if attn_mask is None:
        return functional.scaled_dot_product_attention(query, key, value)
    if attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -math.inf)
    scores = query @ key.mT / math.sqrt(query.shape[-1]) + attn_mask
    return torch.softmax(scores, -1) @ value
