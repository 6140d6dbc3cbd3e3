"""Fourier transforms as products with matrices of cosines and sines, real numbers throughout.

A complex tensor is a pair of real ones. A transform of n values is a product with an n by n
matrix: as many multiplications as a linear layer of that width, which is what the short windows
of audio nets and the small maps of spectral ones allow. Formats have the operator for real
values and powers of two at most, if at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class ComplexPair(NamedTuple):
    """Real and imaginary part, of one shape."""

    re: Tensor
    im: Tensor


def complex_pair(value: Any) -> ComplexPair:
    """A tensor or a number as a pair; real ones have no imaginary part."""
    if isinstance(value, ComplexPair):
        return value
    if isinstance(value, Tensor):
        return ComplexPair(value, torch.zeros_like(value))
    number = complex(value)
    return ComplexPair(torch.tensor(number.real), torch.tensor(number.imag))


_ATEN = torch.ops.aten

#: Elements that one matrix may have; longer transforms stay as they are.
MAX_MATRIX_ELEMENTS = 4 << 20

#: How results are scaled forward and back, by the word for it (None: as "backward").
_POWERS = {"backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}


def _waves(rows: int, columns: int, period: int) -> tuple[Tensor, Tensor] | None:
    """Cos and sin of 2 pi i k / period, [rows, columns] float32; exact where they are 0 or 1."""
    if rows * columns > MAX_MATRIX_ELEMENTS:
        return None
    turns = torch.outer(torch.arange(rows), torch.arange(columns)) % period
    angles = turns.double() * (2 * math.pi / period)
    exact = (turns * 4) % period == 0
    cosine, sine = (
        torch.where(exact, each.round(), each).float()
        for each in (torch.cos(angles), torch.sin(angles))
    )
    return cosine, sine


def _scale(length: int, norm: str | None, back: bool) -> float:
    return float(length ** -_POWERS[norm or "backward"][back])


def _fitted(x: Tensor, axis: int, length: int) -> Tensor:
    """Cut off, or filled up with zeros."""
    have = x.shape[axis]
    if have >= length:
        return x.narrow(axis, 0, length)
    sizes = list(x.shape)
    sizes[axis] = length - have
    return torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1)).expand(sizes)], axis)


def _times(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """A product along an axis."""
    return (x.movedim(axis, -1) @ matrix).movedim(-1, axis)


def _whole(z: Any, n: int | None, axis: int, norm: str | None, back: bool) -> Any:
    """Complex or real to complex along one axis."""
    z = complex_pair(z)
    axis %= z.re.dim()
    length = z.re.shape[axis] if n is None else n
    waves = _waves(length, length, length)
    if waves is None:
        return NotImplemented
    scale = _scale(length, norm, back)
    cosine, sine = waves[0] * scale, waves[1] * (scale if back else -scale)
    re, im = _fitted(z.re, axis, length), _fitted(z.im, axis, length)
    return ComplexPair(
        _times(re, axis, cosine) - _times(im, axis, sine),
        _times(re, axis, sine) + _times(im, axis, cosine),
    )


def _fft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    if isinstance(x, Tensor):
        return _of_real(x, n, dim, norm, onesided=False)
    return _whole(x, n, dim, norm, back=False)


def _ifft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    return _whole(x, n, dim, norm, back=True)


def _of_real(x: Tensor, n: int | None, axis: int, norm: str | None, onesided: bool) -> Any:
    axis %= x.dim()
    length = x.shape[axis] if n is None else n
    waves = _waves(length, length // 2 + 1 if onesided else length, length)
    if waves is None:
        return NotImplemented
    scale, x = _scale(length, norm, back=False), _fitted(x, axis, length)
    return ComplexPair(_times(x, axis, waves[0] * scale), _times(x, axis, -waves[1] * scale))


def _rfft(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    return _of_real(x, n, dim, norm, onesided=True)


def _halves(length: int, scale: float) -> tuple[Tensor, Tensor] | None:
    """Back from the lower half of the frequencies: what re and im are multiplied with."""
    count = length // 2 + 1
    waves = _waves(count, length, length)
    if waves is None:
        return None
    order = torch.arange(count).unsqueeze(1)
    single = torch.remainder(2 * order, length) == 0  # their own mirror images
    once = torch.full((count, 1), scale)
    twice = torch.where(single, once, 2 * once)
    return waves[0] * twice, waves[1] * -twice


def _irfft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    z = complex_pair(x)
    axis = dim % z.re.dim()
    length = 2 * (z.re.shape[axis] - 1) if n is None else n
    matrices = _halves(length, _scale(length, norm, back=True))
    if matrices is None:
        return NotImplemented
    re, im = (_fitted(each, axis, length // 2 + 1) for each in (z.re, z.im))
    return _times(re, axis, matrices[0]) + _times(im, axis, matrices[1])


def _over(
    last: Callable[..., Any], others: Callable[..., Any], last_first: bool, axes: Any = None
) -> Callable[..., Any]:
    """Several axes, one after the other; the last of them is another kind for real values."""

    def rule(x: Any, s: Any = None, dim: Any = axes, norm: str | None = None) -> Any:
        rank = complex_pair(x).re.dim()
        if dim is None:
            dim = list(range(rank)) if s is None else list(range(rank - len(s), rank))
        sizes: Sequence[int | None] = [None] * len(dim) if s is None else s
        steps = [(others, n, axis) for n, axis in zip(sizes[:-1], dim[:-1], strict=True)]
        steps.insert(0 if last_first else len(steps), (last, sizes[-1], dim[-1]))
        for step, n, axis in steps:
            x = step(x, None if n == -1 else n, axis, norm)
            if x is NotImplemented:
                return NotImplemented
        return x

    return rule


def _frames(x: Tensor, n_fft: int, hop: int | None, win: int | None) -> tuple[Tensor, int, int]:
    """[batch, 1, time], the step and the window's length."""
    wide = x.unsqueeze(0) if x.dim() == 1 else x
    return wide.unsqueeze(1), n_fft // 4 if hop is None else hop, n_fft if win is None else win


def _window(window: Tensor | None, n_fft: int, length: int) -> Tensor:
    """The window, in the middle of zeros."""
    window = torch.ones(length) if window is None else window
    before = (n_fft - length) // 2
    return functional.pad(window, (before, n_fft - length - before))


def _stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """A convolution: each frequency has a kernel for its real part and one for its imaginary."""
    if not isinstance(x, Tensor) or align_to_window:
        return NotImplemented
    count = n_fft if onesided is False else n_fft // 2 + 1
    waves = _waves(count, n_fft, n_fft)
    if waves is None:
        return NotImplemented
    frames, hop, length = _frames(x, n_fft, hop_length, win_length)
    kernels = torch.cat([waves[0], -waves[1]]) * (n_fft**-0.5 if normalized else 1.0)
    kernels = kernels * _window(window, n_fft, length)
    found = torch.conv1d(frames, kernels.unsqueeze(1), stride=hop)
    found = found.squeeze(0) if x.dim() == 1 else found
    made = ComplexPair(found.narrow(-2, 0, count), found.narrow(-2, count, count))
    return made if return_complex else torch.stack([made.re, made.im], -1)


def _istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """A transposed convolution, over the sum of the squared windows that lie on each sample."""
    z = complex_pair(x)
    matrices = _halves(n_fft, n_fft**-0.5 if normalized else 1 / n_fft)
    if onesided is False or return_complex or matrices is None:
        return NotImplemented
    single = z.re.dim() == 2
    spectrum = torch.cat([z.re, z.im], -2)
    spectrum = spectrum.unsqueeze(0) if single else spectrum
    _, hop, win = _frames(z.re, n_fft, hop_length, win_length)
    shape = _window(window, n_fft, win)
    kernels = (torch.cat(list(matrices)) * shape).unsqueeze(1)
    laid = torch.conv_transpose1d(spectrum, kernels, stride=hop).squeeze(1)
    ones = torch.ones(1, 1, spectrum.shape[-1])
    weight = torch.conv_transpose1d(ones, (shape * shape).reshape(1, 1, -1), stride=hop).reshape(-1)
    start = n_fft // 2 if center else 0
    end = laid.shape[-1] - start if length is None else min(start + length, laid.shape[-1])
    made = laid[:, start:end] / weight[start:end]
    if length is not None and made.shape[-1] < length:
        made = functional.pad(made, (0, length - made.shape[-1]))
    return made.squeeze(0) if single else made


def _istft_of(x: Tensor, *args: Any, **named: Any) -> Any:
    """For formats that have complex numbers and not this."""
    parts = torch.view_as_real(x)
    return _istft(ComplexPair(parts.select(-1, 0), parts.select(-1, 1)), *args, **named)


#: For complex tensors as they are, by operator.
SIGNAL_RULES: dict[Any, Callable[..., Any]] = {_ATEN.istft.default: _istft_of}

#: Rules by operator, of tensors and of `ComplexPair`; `NotImplemented` leaves the operator as it
#: is.
FFT_RULES: dict[Any, Callable[..., Any]] = {
    _ATEN.fft_fft.default: _fft,
    _ATEN.fft_ifft.default: _ifft,
    _ATEN.fft_rfft.default: _rfft,
    _ATEN.fft_irfft.default: _irfft,
    _ATEN.fft_fft2.default: _over(_fft, _fft, False, [-2, -1]),
    _ATEN.fft_ifft2.default: _over(_ifft, _ifft, False, [-2, -1]),
    _ATEN.fft_rfft2.default: _over(_rfft, _fft, True, [-2, -1]),
    _ATEN.fft_irfft2.default: _over(_irfft, _ifft, False, [-2, -1]),
    _ATEN.fft_fftn.default: _over(_fft, _fft, False),
    _ATEN.fft_ifftn.default: _over(_ifft, _ifft, False),
    _ATEN.fft_rfftn.default: _over(_rfft, _fft, True),
    _ATEN.fft_irfftn.default: _over(_irfft, _ifft, False),
    _ATEN.stft.default: _stft,
    _ATEN.istft.default: _istft,
}
