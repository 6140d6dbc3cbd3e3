"""Further inputs like a model's example: its values in other places, masks of other lengths."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def perturbed_inputs(examples: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
    """Inputs of the examples' shapes and dtypes, within their range of values.

    Floating point values are shuffled and shrunk a little, others shuffled; a mask of ones and
    zeros behind them gets another length.
    """
    random = np.random.default_rng(seed)
    return tuple(_like(each, random) for each in examples)


def _like(example: Tensor, random: np.random.Generator) -> Tensor:
    if _is_mask(example):
        kept = int(random.integers(2, example.shape[-1] + 1))
        return (torch.arange(example.shape[-1]) < kept).to(example.dtype).expand_as(example).clone()
    order = torch.from_numpy(random.permutation(example.numel()))
    mixed = example.reshape(-1)[order].reshape(example.shape)
    return mixed * float(random.uniform(0.6, 1)) if example.is_floating_point() else mixed.clone()


def _is_mask(example: Tensor) -> bool:
    plain = example.dtype == torch.int64 and example.dim() > 0 and example.shape[-1] > 1
    return bool(
        plain and ((example == 0) | (example == 1)).all() and (example.diff(dim=-1) <= 0).all()
    )
