"""What to write in the place of an op that a format refuses: hints that have been carried out.

``tests/backends/test_advice.py`` carries out each of them: what it says equals the op in PyTorch,
and converts to each format that refuses the op.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeserve.backends.torch.culprit import base_name
from edgeserve.backends.torch.measured import TAKEN

__all__ = ["INSTEAD", "hint", "takers"]

_NAMES = {"onnx": "ONNX", "tflite": "TFLite", "coreml": "Core ML"}

#: What is refused is a transform of more than some 2000 values: its whole matrix is too large.
_FOURIER = (
    "of a long transform compute only the k values that you need, by two constant matrices: "
    "x @ torch.cos(a) is the real part and -(x @ torch.sin(a)) the imaginary one, where "
    "a = 2 * pi / n * outer(arange(n), arange(k)); back, the real part of the answer is "
    "(re @ torch.cos(a) - im @ torch.sin(a)) / n"
)
#: What is refused is one of more than 4 by 4.
_INVERSE = (
    "invert a constant matrix in __init__; of one that varies and is well conditioned repeat "
    "y = y @ (2 * eye - a @ y) some fifteen times from y = a.mT / (a.abs().sum(-1).max() * "
    "a.abs().sum(-2).max())"
)

#: What to write instead, by the operator's name without overload.
INSTEAD: Mapping[str, str] = {
    "linalg_det": "up to 4 by 4 it is taken; of a larger one expand along its first row: a sum of "
    "(-1)**i * x[..., 0, i] * torch.linalg.det(minor), until the minors are 4 by 4",
    "linalg_inv": _INVERSE,
    "linalg_solve": f"{_INVERSE}; then multiply y @ b",
    "histc": "compare with the edges: ((x >= edges[:-1, None]) & (x < edges[1:, None])).sum(1)",
    "bincount": "compare with the numbers: (x == torch.arange(n)[:, None]).sum(1)",
    "corrcoef": "centre the rows, c = x - x.mean(1, True), divide each by its norm, and c @ c.T",
    "fft_fft": _FOURIER,
    "fft_ifft": _FOURIER,
    "fft_rfft": _FOURIER,
    "fft_irfft": _FOURIER,
    "stft": f"cut the windows with x.unfold(-1, n, hop) * window and {_FOURIER}",
    "index_by_mask": "keep the size: torch.where(mask, x, 0), or weigh by mask.float()",
    "masked_select": "keep the size: torch.where(mask, x, 0), or weigh by mask.float()",
    "nonzero": "keep the size: work with the mask itself, and torch.where(mask, x, 0)",
}


def hint(operator: str, format: str, otherwise: str) -> str:
    """What to do about an op that a format refuses, and which other formats take it.

    Args:
        operator: As the exported program calls it.
        format: The one that refuses it.
        otherwise: What to say where there is no tried replacement.
    """
    advice = INSTEAD.get(base_name(operator), otherwise)
    others = [_NAMES[name] for name in takers(operator) if name != format]
    if not others:
        return advice
    return f"{advice} ({' and '.join(others)} {'takes' if len(others) == 1 else 'take'} this op)"


def takers(operator: str) -> tuple[str, ...]:
    """Formats that took this operator in a measured model; none where it was never measured."""
    base = base_name(operator)
    return next((formats for formats, names in TAKEN.items() if base in names.split()), ())
