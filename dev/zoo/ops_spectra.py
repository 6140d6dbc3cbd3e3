"""Spectra, complex numbers, bits, bags, small matrices, transposed convolutions of three axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from dev.zoo.model_helpers import Function, ids, noise
from dev.zoo.ops_inputs import IMAGE, INTEGERS, VOLUME, WAVE, X

_WINDOW = torch.hann_window(8)
_TURNS = torch.polar(torch.ones(3, 2), noise(3, 2))


def _rotary(x: Tensor) -> Tensor:
    """Positions as rotations, the way they were first published."""
    turned = torch.view_as_complex(x.reshape(2, 3, 2, 2)) * _TURNS
    return torch.view_as_real(turned).flatten(2)


def _stft(x: Tensor, **more: Any) -> Tensor:
    return torch.stft(x, 8, 4, window=_WINDOW, return_complex=True, **more)


def _bags(mode: str) -> nn.Module:
    bag = nn.EmbeddingBag(9, 5, mode=mode)
    starts = torch.tensor([0, 2, 2, 5])
    return Function(lambda x: bag(x.reshape(-1), starts))


SPECTRA: dict[str, tuple[Any, Tensor]] = {
    "rotary_complex": (Function(_rotary), X),
    "stft_real": (Function(lambda x: torch.view_as_real(_stft(x, normalized=True))), WAVE[:, 0]),
    "stft_twosided": (
        Function(lambda x: _stft(x, onesided=False, center=False).angle().cos()),
        WAVE[:, 0],
    ),
    "istft": (
        Function(lambda x: torch.istft(_stft(x) * 0.5, 8, 4, window=_WINDOW, length=12)),
        WAVE[:, 0],
    ),
    "spectral_conv": (
        Function(
            lambda x: torch.fft.irfft2(
                torch.fft.rfft2(x, norm="ortho") * torch.complex(x[..., :6], x[..., 1:7]),
                s=(8, 10),
                norm="ortho",
            )
        ),
        IMAGE,
    ),
    "rfft_padded": (Function(lambda x: torch.view_as_real(torch.fft.rfft(x, n=15, dim=1))), WAVE),
    "irfft_odd": (Function(lambda x: torch.fft.irfft(torch.complex(x, x * 0.3), n=9)), WAVE),
    "fft2_power": (Function(lambda x: torch.fft.fftshift(torch.fft.fft2(x)).abs().pow(2)), IMAGE),
    "complex_ratio": (
        Function(
            lambda x: torch.view_as_real(torch.complex(x, x + 1) / torch.complex(x * x + 1, x))
        ),
        X,
    ),
    "complex_matmul": (
        Function(lambda x: (torch.complex(x, x * 0.5) @ torch.complex(x, -x).mT).abs()),
        X,
    ),
    "shift_right": (Function(lambda x: (x >> 1) + (x << 2)), INTEGERS),
    "bitwise_scalar": (Function(lambda x: (x & 6) + (x | 3) * 2 + (x ^ 5) * 4), INTEGERS),
    "embedding_bag_max": (_bags("max"), ids(9, 2, 3, low=0)),
    "embedding_bag_sum": (_bags("sum"), ids(9, 2, 3, low=0)),
    "inverse_4": (Function(lambda x: torch.linalg.inv(x[:, 0, :4, :4] + 4 * torch.eye(4))), IMAGE),
    "det_4": (Function(lambda x: torch.linalg.det(x[..., :4, :4])), IMAGE),
    "conv_transpose3d_strided": (nn.ConvTranspose3d(4, 3, 3, stride=(1, 2, 2), padding=1), VOLUME),
    "conv_transpose3d_groups": (
        nn.ConvTranspose3d(4, 6, 2, stride=2, padding=(0, 1, 0), output_padding=1, groups=2),
        VOLUME,
    ),
    "conv3d_groups": (nn.Conv3d(4, 6, 3, padding=1, groups=2), VOLUME),
    "mel": (Function(lambda x: torch.log(f.relu(_stft(x).abs().pow(2).mT) + 0.1)), WAVE[:, 0]),
}
