"""Scaled dot-product attention as one op (from iOS 18)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from edgeserve.backends.coreml.interpreter.registry import kernel

__all__ = ["scaled_dot_product_attention"]


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
