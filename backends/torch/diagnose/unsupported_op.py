"""An op that a format does not support: its operator, module, line and a tried replacement.

Nothing heavy is imported here: the errors of all formats use it. The hints are tested:
``tests/backends/torch/diagnose/test_unsupported_op.py`` shows that each replacement equals the op
in PyTorch and converts to each format that does not support the op.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeserve import backends
from edgeserve.errors import ConvertError, UnsupportedOp

if TYPE_CHECKING:
    from torch.export import ExportedProgram


#: Exceptions of torch in a trace with fake tensors, for a size or a number that depends on values.
_BY_VALUE = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode",
)


@dataclass(frozen=True)
class RefusedOp:
    """The op that caused an error.

    Attributes:
        operator: Its name in the exported program, ``aten.det.default``.
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

    def unsupported(
        self, codes: tuple[str, str], format: str, reason: str | None, alternatives: str
    ) -> UnsupportedOp:
        """The error of a format that cannot express this op.

        Args:
            codes: Of an op without a translation, and of an unsupported use of an op.
            format: The format.
            reason: The converter's message about the use; None: there is no translation at all.
            alternatives: What a supported use may look like, for the hint.
        """
        title = backends.title(format)
        if reason is None:
            wanted, got = f"an op that {title} can express", "one without a translation"
            hint = op_hint(self.operator, format, REWRITE_HINT)
        else:
            wanted, got = f"a use of it that {title} can express", reason
            hint = op_hint(self.operator, format, f"write that line in another way: {alternatives}")
        code = codes[reason is not None]
        return UnsupportedOp(
            code, self.thing, wanted=wanted, got=got, source_line=self.line, hint=hint
        )

    def data_dependent(self, code: str, format: str) -> UnsupportedOp:
        """The error of a format with fixed sizes for an op whose output size depends on values."""
        base = base_name(self.operator)
        operator = "index_by_mask" if base == "index" else self.operator
        number = base in ("item", "_local_scalar_dense")
        keep = "keep the tensor: x * s, not x * s.item()" if number else _KEEP_SIZE
        return UnsupportedOp(
            code,
            self.thing,
            wanted="an op whose result has one size"
            if not number
            else "numbers that are constants",
            got=f"a {'number' if number else 'size'} that depends on values",
            source_line=self.line,
            hint=op_hint(operator, format, keep),
        )


_KEEP_SIZE = "keep the size: torch.where and masks"

#: The hint for an op without a translation and without a tried replacement.
REWRITE_HINT = "write that line with other operators, or do that step outside the model"


def converter_error(code: str, converter: str, got: str) -> ConvertError:
    """The error where a converter failed and no op is known to be the cause."""
    hint = "the job's log holds the converter's whole message; --bisect finds the part"
    return ConvertError(code, converter, wanted="a model", got=got, hint=hint)


def mark_nodes(program: ExportedProgram) -> dict[str, str]:
    """Put each node's name where its stack trace was, and return the traces by name.

    Converters decompose and rename nodes but hand stack traces down, so every op that they write,
    and every node that they fail on, leads back to the source op it came from.
    """
    traces = {}
    for node in program.graph.nodes:
        traces[node.name] = str(node.meta.get("stack_trace") or "")
        node.meta["stack_trace"] = node.name
    return traces


def node_marks(error: BaseException) -> Iterator[str]:
    """Stack traces of the fx nodes that a converter's frames worked on, outermost frame first."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for name in ("node", "n"):
            meta: Any = getattr(frame.f_locals.get(name), "meta", None)
            if isinstance(meta, dict) and isinstance(meta.get("stack_trace"), str):
                yield meta["stack_trace"]


def base_name(operator: str) -> str:
    """``det`` of ``aten.det.default``."""
    return operator.removeprefix("aten.").split(".")[0]


def find_op_by_name(operators: Iterable[tuple[str, str]], word: str) -> str | None:
    """The first op whose operator matches a converter's own name for it (``BitwiseAnd``).

    Args:
        operators: Names of ops and their operators, in order.
        word: The converter's name.
    """
    wanted = _normalized(word)
    return next((name for name, op in operators if _normalized(base_name(op)) == wanted), None)


def _normalized(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def find_checked_op(operators: Iterable[tuple[str, str]]) -> str | None:
    """The first op that checks its own result, as inverting a singular matrix does.

    torch traces that check as an effect with a token, which no converter supports. Such operators
    have a variant without the check: ``linalg_inv_ex``.
    """
    import torch

    for name, operator in operators:
        base = base_name(operator)
        if base.startswith("linalg_") and hasattr(torch.ops.aten, f"{base}_ex"):
            return name
    return None


def data_dependent_error(chain: Iterable[BaseException]) -> Any | None:
    """The exception of the chain that reports a size which depends on values, if any."""
    return next((part for part in chain if type(part).__name__ in _BY_VALUE), None)


#: Only transforms of more than about 2000 values are unsupported: the matrix is too large.
_FOURIER = (
    "of a long transform compute only the k values that you need, by two constant matrices: "
    "x @ torch.cos(a) is the real part and -(x @ torch.sin(a)) the imaginary one, where "
    "a = 2 * pi / n * outer(arange(n), arange(k)); back, the real part of the answer is "
    "(re @ torch.cos(a) - im @ torch.sin(a)) / n"
)
#: Only matrices of more than 4 by 4 are unsupported.
_INVERSE = (
    "invert a constant matrix in __init__; of one that varies and is well conditioned repeat "
    "y = y @ (2 * eye - a @ y) some fifteen times from y = a.mT / (a.abs().sum(-1).max() * "
    "a.abs().sum(-2).max())"
)

#: What to write instead, by the operator's name without overload.
REPLACEMENTS: Mapping[str, str] = {
    "linalg_det": "supported up to 4 by 4; expand a larger one along its first row: a sum of "
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
    """The hint for an op that a format does not support, with the formats that support it.

    Args:
        operator: Its name in the exported program.
        format: The format that does not support it.
        otherwise: The hint where there is no tried replacement.
    """
    advice = REPLACEMENTS.get(base_name(operator), otherwise)
    others = [backends.title(name) for name in supporting_formats(operator) if name != format]
    if not others:
        return advice
    # Another use of an operator may need another translation: only what was tried is said.
    return f"{advice} (in a tested model {' and '.join(others)} converted this op)"


def supporting_formats(operator: str) -> tuple[str, ...]:
    """Formats that converted this operator in a measured model; empty if it was never measured."""
    return _op_support().get(base_name(operator), ())


@cache
def _op_support() -> Mapping[str, tuple[str, ...]]:
    """Formats by operator, as ``dev/zoo/op_support.py`` measured them."""
    groups = json.loads(Path(__file__).with_name("op_support.json").read_text())
    return {op: tuple(formats.split()) for formats, ops in groups.items() for op in ops.split()}
