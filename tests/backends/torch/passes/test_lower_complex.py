"""Complex numbers and spectra in real ones: equal to PyTorch, and nothing complex is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgeserve.backends.torch.passes import apply_passes
from edgeserve.backends.torch.passes.fx_utils import with_sizes
from edgeserve.backends.torch.passes.lower_complex import lower_complex
from edgeserve.backends.torch.program.io import log_warnings

WINDOW = torch.hann_window(16)
TURNS = torch.polar(torch.ones(5, 3), torch.linspace(-3, 3, 15).reshape(5, 3))
WAVE, IMAGE, MATRIX = torch.randn(3, 64), torch.randn(2, 5, 6), torch.randn(2, 5, 6) * 0.7


class Net(nn.Module):
    """Any function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("turns", TURNS)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.turns) if self.function is rotary else self.function(x)


def z(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x.flip(-1) * 0.5 + 0.1)


def real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x)


def stft(x: torch.Tensor, **more: Any) -> torch.Tensor:
    return torch.stft(x, 16, 4, window=WINDOW, return_complex=True, **more)


def rotary(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    return real(torch.view_as_complex(x.reshape(2, 5, 3, 2)) * turns).flatten(2)


CASES: dict[str, tuple[Any, torch.Tensor]] = {
    "rotary": (rotary, IMAGE),
    "stft": (lambda x: stft(x).abs(), WAVE),
    "stft_real": (
        lambda x: torch.stft(x, 16, 4, return_complex=False, window=torch.ones(16)),
        WAVE,
    ),
    "stft_odd": (
        lambda x: real(
            torch.stft(
                x,
                21,
                5,
                win_length=13,
                window=torch.hann_window(13),
                onesided=False,
                normalized=True,
                center=False,
                return_complex=True,
            )
        ),
        WAVE[0],
    ),
    "istft": (lambda x: torch.istft(stft(x) * 2, 16, 4, window=WINDOW), WAVE),
    "istft_length": (
        lambda x: torch.istft(
            stft(x, normalized=True), 16, 4, window=WINDOW, normalized=True, length=70
        ),
        WAVE[0],
    ),
    "fft": (lambda x: torch.fft.ifft(torch.fft.fft(x) * 2).real, WAVE),
    "fft_complex": (lambda x: real(torch.fft.fft(z(x), n=9, dim=1, norm="ortho")), IMAGE),
    "rfft": (lambda x: real(torch.fft.rfft(x, n=9, norm="forward")), IMAGE),
    "irfft": (lambda x: torch.fft.irfft(z(x), dim=1, norm="forward"), IMAGE),
    "irfft_odd": (lambda x: torch.fft.irfft(z(x), n=9), IMAGE),
    "planes": (
        lambda x: torch.fft.irfft2(
            torch.fft.rfft2(x, norm="ortho") * z(x[..., :4]), s=(5, 6), norm="ortho"
        ),
        IMAGE,
    ),
    "all_axes": (lambda x: torch.fft.irfftn(torch.fft.rfftn(x), s=(5, 7)), IMAGE),
    "both_ways": (
        lambda x: real(torch.fft.ifftn(torch.fft.fftn(x)) - torch.fft.ifft2(z(x))),
        IMAGE,
    ),
    "shifted": (lambda x: torch.angle(torch.fft.fftshift(torch.fft.fft2(x))).cos(), IMAGE),
    "arithmetic": (lambda x: real((z(x) @ z(x).mT).conj() / z(x[..., :5]) - 3 + 2j), MATRIX),
    "scalars": (lambda x: real(1 - z(x) / 2 + torch.rsub(z(x), 2j) - x * 1j), MATRIX),
    "powers": (lambda x: torch.cat([z(x) ** 3, z(x).sqrt(), z(x).square()], 1).log().real, MATRIX),
    "parts": (lambda x: torch.stack([real(each).sum(-1) for each in z(x).unbind(1)]), IMAGE),
    "chunks": (lambda x: torch.cat([each.abs() for each in z(x).split([2, 4], -1)], -1), IMAGE),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", z(x), z(x).conj()).abs(), MATRIX),
    "chosen": (lambda x: real(torch.sgn(z(x)) * torch.where(x > 0, z(x), 0)), IMAGE),
    "cast": (lambda x: real(x.to(torch.complex64) * z(x) + torch.zeros_like(z(x))), IMAGE),
    "exponential": (lambda x: torch.exp(z(x)).imag + torch.polar(x.abs(), x).real, MATRIX),
}


def rewritten(module: nn.Module, x: torch.Tensor) -> tuple[Any, tuple[str, ...]]:
    program = torch.export.export(module, (x,))
    with log_warnings():
        graph = with_sizes(program.module(check_guards=False), (x,))
        names = apply_passes(graph, (lower_complex,))
        return torch.export.export(graph, (x,)), names


@pytest.mark.filterwarnings("ignore:stft with return_complex=False is deprecated")
@pytest.mark.parametrize("name", list(CASES))
def test_complex_numbers_are_pairs(name: str) -> None:
    function, x = CASES[name]
    module = Net(function).eval()
    program, names = rewritten(module, x)
    assert names == ("lower_complex",)
    wanted = module(x)
    scale = float(wanted.abs().max())
    torch.testing.assert_close(program.module()(x), wanted, rtol=1e-5, atol=1e-5 * scale)
    values = [node.meta.get("val") for node in program.graph.nodes]
    held = [*values, *program.state_dict.values(), *program.constants.values()]
    assert not [each for each in held if isinstance(each, torch.Tensor) and each.is_complex()]


def test_what_has_no_rule_is_left_with_its_complex_input() -> None:
    module = Net(lambda x: torch.view_as_real(torch.tanh(z(x)) * 2)).eval()
    program, _ = rewritten(module, IMAGE)
    kept = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"aten.complex.default", "aten.tanh.default"} <= kept
    torch.testing.assert_close(program.module()(IMAGE), module(IMAGE))


def test_long_transforms_are_left() -> None:
    module = Net(lambda x: torch.fft.rfft(x).abs()).eval()
    assert rewritten(module, torch.randn(1, 4096))[1] == ()


def test_real_nets_are_left() -> None:
    module = Net(functional.gelu).eval()
    assert rewritten(module, IMAGE)[1] == ()
