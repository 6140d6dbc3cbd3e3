"""Operators over tensors of five axes, operands that are stretched along some, and no batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from dev.zoo.model_helpers import noise
from dev.zoo.ops_inputs import IMAGE, VOLUME, WAVE

FIVE, STRETCHED = noise(2, 3, 2, 4, 4), noise(2, 1, 2, 4, 1, seed=2)

_TWO: dict[str, Any] = {
    "pow": lambda x, y: (x.abs() + 0.2) ** y,
    "remainder": lambda x, y: torch.remainder(x * 3, y.abs() + 0.6),
    "xor": lambda x, y: (x > 0) ^ (y > 0),
    "less": lambda x, y: x < y,
    "maximum": lambda x, y: torch.maximum(x, y),
    "where": lambda x, y: torch.where(x > y, x, y),
    "floor_divide": lambda x, y: torch.div(x, y.abs() + 0.5, rounding_mode="floor"),
    "atan2": lambda x, y: torch.atan2(x, y),
    "clamp": lambda x, y: torch.clamp(x, max=y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, -1.0),
}

_ONE: dict[str, Any] = {
    "square": lambda x: x.pow(2) + x**3,
    "int_div": lambda x: (x * 9).long() / 4,
    "rms_norm": lambda x: f.rms_norm(x, (4,)),
    "layer_norm": lambda x: f.layer_norm(x, (4, 4)),
    "group_norm": lambda x: f.group_norm(x, 3),
    "repeat": lambda x: x.repeat(2, 1, 2, 1, 2),
    "tile": lambda x: x.tile((2, 1)),
    "unfold": lambda x: x.unfold(3, 2, 1),
    "prelu": lambda x: f.prelu(x, torch.tensor([0.1, 0.2, 0.3])),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -2), (-1, 0)),
    "roll_cummax": lambda x: x.cummax(2)[0].roll(-4),
    "linear": lambda x: f.linear(x, torch.arange(12.0).reshape(3, 4)),
    "matmul": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("abcde,abcfe->abcdf", x, x),
    "attention": lambda x: f.scaled_dot_product_attention(x, x, x),
    "pad_edge": lambda x: f.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"),
    "one_hot": lambda x: f.one_hot((x > 0).long(), 2),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])),
    "tril": torch.tril,
    "diagonal": lambda x: x.diagonal(dim1=-1, dim2=-2),
}

_LAYERS: dict[str, tuple[Any, torch.Tensor]] = {
    "conv_transpose1d_uneven": (nn.ConvTranspose1d(4, 6, 3, 2, 1), WAVE),
    "conv_transpose1d_wide": (nn.ConvTranspose1d(4, 6, 5, 2, 2), WAVE),
    "conv_transpose2d_uneven_stride": (nn.ConvTranspose2d(4, 6, 3, (2, 1), 1), IMAGE),
    "conv_transpose2d_padded": (nn.ConvTranspose2d(4, 6, 3, 2, 1), IMAGE),
    "conv_transpose2d_padded_dilated": (nn.ConvTranspose2d(4, 6, 3, 2, 3, dilation=3), IMAGE),
    "conv_transpose2d_sparse": (nn.ConvTranspose2d(4, 6, 2, 3, 1), IMAGE),
    "conv_transpose2d_padded_groups": (nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2), IMAGE),
    "conv_transpose3d_padded": (nn.ConvTranspose3d(4, 6, 3, 2, 1), VOLUME),
    "conv3d_one_channel": (nn.Conv3d(1, 3, (2, 1, 2), 2, (0, 0, 1)), VOLUME[:, :1].contiguous()),
    "conv1d_one_sample": (nn.Conv1d(4, 6, 3, 2, 1), WAVE[0]),
    "conv_transpose2d_one_sample": (nn.ConvTranspose2d(4, 6, 3, 2, 1), IMAGE[0]),
    "avg_pool2d_one_sample": (nn.AvgPool2d(2), IMAGE[0]),
    "max_pool3d_one_sample": (nn.MaxPool3d(2), VOLUME[0]),
}

#: A function or a layer with its examples, by name.
RANKS: dict[str, tuple[Any, ...]] = {
    **{f"{name}_rank5": (function, FIVE, STRETCHED) for name, function in _TWO.items()},
    **{f"{name}_rank5": (function, FIVE) for name, function in _ONE.items()},
    **_LAYERS,
}
