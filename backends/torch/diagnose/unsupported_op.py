"""The op that a format refused: its operator, module and line, and what to write in its place.

Nothing heavy is imported here: the errors of all formats are made of it. The hints have been
carried out: ``tests/backends/torch/diagnose/test_unsupported_op.py`` shows that what each says
equals the op in PyTorch and converts to each format that refuses the op.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeserve import backends
from edgeserve.backends.torch.diagnose.op_support import TAKEN

__all__ = [
    "REPLACEMENTS",
    "RefusedOp",
    "base_name",
    "data_dependent_error",
    "find_checked_op",
    "find_op_by_name",
    "mask_name",
    "op_hint",
    "supporting_formats",
]


#: What torch raises, in a trace without numbers, for a result whose size only numbers tell.
_BY_VALUE = ("DynamicOutputShapeException", "GuardOnDataDependentSymNode")


@dataclass(frozen=True)
class RefusedOp:
    """An op at fault.

    Attributes:
        operator: As the exported program calls it, ``aten.det.default``.
        module: Path of the innermost module that holds it, ``encoder.layers.3.attn``; None at the
            top.
        line: The user's own ``file:line``; None where no line of theirs is known.
    """

    operator: str
    module: str | None = None
    line: str | None = None

    @property
    def thing(self) -> str:
        """The op as an error names it."""
        return f"op {self.operator} in {self.module}" if self.module else f"op {self.operator}"


def base_name(operator: str) -> str:
    """``det`` of ``aten.det.default``."""
    return operator.removeprefix("aten.").split(".")[0]


def mask_name(operator: str) -> str:
    """What picking with a mask is called in advice; other operators keep their name."""
    return "index_by_mask" if base_name(operator) == "index" else operator


def find_op_by_name(operators: Iterable[tuple[str, str]], word: str) -> str | None:
    """The first op whose operator is called as a converter's own word says (``BitwiseAnd``).

    Args:
        operators: Names of ops and their operators, in order.
        word: Of another naming.
    """
    wanted = _normalized(word)
    return next((name for name, op in operators if _normalized(base_name(op)) == wanted), None)


def _normalized(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def find_checked_op(operators: Iterable[tuple[str, str]]) -> str | None:
    """The first op that raises where its result is none, as inverting a singular matrix does.

    torch traces that check as an effect of the program, with a token that goes through it, which
    no converter takes. Such operators have a twin without the check: ``linalg_inv_ex``.
    """
    import torch

    for name, operator in operators:
        base = base_name(operator)
        if base.startswith("linalg_") and hasattr(torch.ops.aten, f"{base}_ex"):
            return name
    return None


def data_dependent_error(chain: Iterable[BaseException]) -> Any | None:
    """The exception that says a size depends on values, if one in the chain does."""
    return next((part for part in chain if type(part).__name__ in _BY_VALUE), None)


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
REPLACEMENTS: Mapping[str, str] = {
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


def op_hint(operator: str, format: str, otherwise: str) -> str:
    """What to do about an op that a format refuses, and which other formats take it.

    Args:
        operator: As the exported program calls it.
        format: The one that refuses it.
        otherwise: What to say where there is no tried replacement.
    """
    advice = REPLACEMENTS.get(base_name(operator), otherwise)
    others = [backends.title(name) for name in supporting_formats(operator) if name != format]
    if not others:
        return advice
    return f"{advice} ({' and '.join(others)} {'takes' if len(others) == 1 else 'take'} this op)"


def supporting_formats(operator: str) -> tuple[str, ...]:
    """Formats that took this operator in a measured model; none where it was never measured."""
    base = base_name(operator)
    return next((formats for formats, names in TAKEN.items() if base in names.split()), ())
