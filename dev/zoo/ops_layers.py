"""Layers: convolutions, pools, norms, resizing, recurrence, attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from dev.zoo.model_helpers import Function, ids, noise
from dev.zoo.ops_inputs import IMAGE, KERNEL, VOLUME, WAVE, X

LAYERS: dict[str, tuple[Any, Tensor]] = {
    "linear": (nn.Linear(4, 5), X),
    "linear_no_bias": (nn.Linear(4, 5, bias=False), X),
    "bilinear": (Function(lambda x: f.bilinear(x, x, KERNEL)), X),
    "conv1d": (nn.Conv1d(4, 6, 3), WAVE),
    "conv1d_same": (nn.Conv1d(4, 6, 4, padding="same"), WAVE),
    "conv2d": (nn.Conv2d(4, 6, 3), IMAGE),
    "conv2d_stride": (nn.Conv2d(4, 6, 3, 2, 1), IMAGE),
    "conv2d_groups": (nn.Conv2d(4, 6, 3, groups=2), IMAGE),
    "conv2d_dilated": (nn.Conv2d(4, 6, 3, dilation=2, padding=(2, 1)), IMAGE),
    "conv2d_depthwise": (nn.Conv2d(4, 8, 3, groups=4, padding="same"), IMAGE),
    "conv2d_even": (nn.Conv2d(4, 6, (2, 4), (2, 3)), IMAGE),
    "conv3d": (nn.Conv3d(4, 6, 3), VOLUME),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, 2), WAVE),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "conv_transpose2d_groups": (nn.ConvTranspose2d(4, 6, 3, 2, groups=2), IMAGE),
    "conv_transpose2d_dilated": (nn.ConvTranspose2d(4, 6, 3, dilation=2), IMAGE),
    "conv_transpose2d_uneven": (nn.ConvTranspose2d(4, 4, (2, 3), (2, 1), groups=4), IMAGE),
    "conv_transpose3d": (nn.ConvTranspose3d(4, 6, 3), VOLUME),
    "max_pool1d": (nn.MaxPool1d(3, 2), WAVE),
    "max_pool2d": (nn.MaxPool2d(3, 2, 1), IMAGE),
    "max_pool2d_ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), IMAGE),
    "max_pool2d_dilated": (nn.MaxPool2d(2, 1, dilation=2), IMAGE),
    "max_pool2d_indices": (nn.MaxPool2d(2, return_indices=True), IMAGE),
    "max_pool3d": (nn.MaxPool3d(2), VOLUME),
    "avg_pool1d": (nn.AvgPool1d(3, 2), WAVE),
    "avg_pool2d": (nn.AvgPool2d(3, 2, 1), IMAGE),
    "avg_pool2d_ceil": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "avg_pool2d_inner": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "avg_pool2d_divisor": (nn.AvgPool2d(2, divisor_override=3), IMAGE),
    "avg_pool3d": (nn.AvgPool3d(2), VOLUME),
    "adaptive_avg1d": (nn.AdaptiveAvgPool1d(5), WAVE),
    "adaptive_avg2d_1": (nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive_avg2d": (nn.AdaptiveAvgPool2d((3, 4)), IMAGE),
    "adaptive_avg2d_whole": (nn.AdaptiveAvgPool2d((4, 5)), IMAGE),
    "adaptive_max2d": (nn.AdaptiveMaxPool2d((3, 4)), IMAGE),
    "adaptive_max1d": (nn.AdaptiveMaxPool1d(4), WAVE),
    "adaptive_avg3d": (nn.AdaptiveAvgPool3d((2, 3, 2)), VOLUME),
    "lp_pool2d": (nn.LPPool2d(2, 2), IMAGE),
    "batch_norm1d": (nn.BatchNorm1d(4), WAVE),
    "batch_norm2d": (nn.BatchNorm2d(4), IMAGE),
    "batch_norm3d": (nn.BatchNorm3d(4), VOLUME),
    "layer_norm": (nn.LayerNorm(4), X),
    "layer_norm_two": (nn.LayerNorm((3, 4)), X),
    "layer_norm_plain": (nn.LayerNorm(4, elementwise_affine=False), X),
    "rms_norm": (nn.RMSNorm(4), X),
    "rms_norm_eps": (nn.RMSNorm(4, eps=1e-3), X),
    "group_norm": (nn.GroupNorm(2, 4), IMAGE),
    "group_norm_plain": (nn.GroupNorm(4, 4, affine=False), WAVE),
    "instance_norm1d": (nn.InstanceNorm1d(4), WAVE),
    "instance_norm2d": (nn.InstanceNorm2d(4, affine=True), IMAGE),
    "local_response": (nn.LocalResponseNorm(3), IMAGE),
    "reflection_pad2d": (nn.ReflectionPad2d((1, 2, 3, 1)), IMAGE),
    "replication_pad2d": (nn.ReplicationPad2d((1, 2, 3, 1)), IMAGE),
    "circular_pad2d": (nn.CircularPad2d((1, 2, 3, 1)), IMAGE),
    "reflection_pad1d": (nn.ReflectionPad1d((2, 1)), WAVE),
    "replication_pad3d": (nn.ReplicationPad3d(1), VOLUME),
    "zero_pad2d": (nn.ZeroPad2d((1, -1, 2, 0)), IMAGE),
    "unfold": (nn.Unfold(3, 1, 1, 2), IMAGE),
    "fold": (
        Function(
            lambda x: f.fold(f.unfold(x, (2, 3), 1, 0, (2, 1)), (8, 10), (2, 3), 1, 0, (2, 1))
        ),
        IMAGE,
    ),
    "pixel_shuffle": (nn.PixelShuffle(2), IMAGE),
    "pixel_unshuffle": (nn.PixelUnshuffle(2), IMAGE),
    "upsample_nearest1d": (nn.Upsample(scale_factor=2), WAVE),
    "upsample_linear1d": (nn.Upsample(20, mode="linear"), WAVE),
    "upsample_nearest2d": (nn.Upsample((5, 25)), IMAGE),
    "upsample_bilinear": (nn.Upsample((13, 7), mode="bilinear"), IMAGE),
    "upsample_bilinear_scale": (nn.Upsample(scale_factor=1.7, mode="bilinear"), IMAGE),
    "upsample_bilinear_kept_scale": (
        Function(
            lambda x: f.interpolate(
                x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True
            )
        ),
        IMAGE,
    ),
    "upsample_bicubic": (nn.Upsample((13, 7), mode="bicubic"), IMAGE),
    "upsample_trilinear": (nn.Upsample((6, 8, 9), mode="trilinear"), VOLUME),
    "upsample_nearest3d": (nn.Upsample(scale_factor=2), VOLUME),
    "lstm": (Function(nn.LSTM(4, 5, batch_first=True)), X),
    "gru": (Function(nn.GRU(4, 5, batch_first=True)), X),
    "lstm_cell": (nn.LSTMCell(4, 5), noise(2, 4)),
    "gru_cell": (nn.GRUCell(4, 5), noise(2, 4)),
    "rnn_relu": (nn.RNN(4, 5, nonlinearity="relu"), X),
    "embedding": (nn.Embedding(9, 5), ids(9, 2, 3, low=0)),
    "embedding_padding": (nn.Embedding(9, 5, padding_idx=3), ids(9, 2, 3, low=0)),
    "embedding_bag": (nn.EmbeddingBag(9, 5, mode="mean"), ids(9, 2, 3, low=0)),
    "attention_module": (
        Function(lambda x: f.scaled_dot_product_attention(x, x, x)),
        noise(2, 2, 5, 4),
    ),
    "attention_causal": (
        Function(lambda x: f.scaled_dot_product_attention(x, x, x, is_causal=True)),
        noise(2, 2, 5, 4),
    ),
    "attention_scale": (
        Function(lambda x: f.scaled_dot_product_attention(x, x, x, scale=0.3)),
        noise(2, 2, 5, 4),
    ),
    "attention_gqa": (
        Function(lambda x: f.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True)),
        noise(2, 4, 5, 4),
    ),
    "affine_grid": (
        Function(
            lambda x: f.grid_sample(
                x,
                f.affine_grid(x[:, :2, 0, :3], [2, 4, 5, 6], align_corners=False),
                align_corners=False,
            )
        ),
        IMAGE,
    ),
    "grid_sample_border": (
        Function(
            lambda x: f.grid_sample(
                x,
                x[:, :2, :5, :6].permute(0, 2, 3, 1).tanh(),
                padding_mode="border",
                align_corners=True,
            )
        ),
        IMAGE,
    ),
    "grid_sample_nearest": (
        Function(
            lambda x: f.grid_sample(
                x, x[:, :2, :5, :6].permute(0, 2, 3, 1).tanh(), mode="nearest", align_corners=False
            )
        ),
        IMAGE,
    ),
    "rfft": (Function(lambda x: torch.fft.rfft(x).abs()), WAVE),
    "fft_ifft": (Function(lambda x: torch.fft.ifft(torch.fft.fft(x) * 2).real), WAVE),
    "inverse": (Function(lambda x: torch.linalg.inv(x[:, :, :3] + 5 * torch.eye(3))), X),
    "det": (Function(lambda x: torch.linalg.det(x[:, :, :3])), X),
    "max_unpool": (
        Function(lambda x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2)),
        IMAGE,
    ),
    "to_half_back": (Function(lambda x: x.half().float() * 2), X),
    "to_double": (Function(lambda x: (x.double() * 3).float()), X),
    "to_int": (Function(lambda x: (x * 3).int() + 1), X),
    "to_bool": (Function(lambda x: x.round().bool()), X),
    "epsilon_tiny": (
        Function(lambda x: x / (x.relu().pow(2).sum(-1, keepdim=True) + 1e-12)),
        X * 1e-3,
    ),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), X),
}
