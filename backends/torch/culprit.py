"""The op that a format refused: its operator, the module that holds it, the user's own line.

Nothing heavy is imported here: refusals of all formats are made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Culprit", "base_name", "by_mask", "checks_itself", "depends_on_values", "named_like"]

#: What torch raises, in a trace without numbers, for a result whose size only numbers tell.
_BY_VALUE = ("DynamicOutputShapeException", "GuardOnDataDependentSymNode")


@dataclass(frozen=True)
class Culprit:
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


def by_mask(operator: str) -> str:
    """What picking with a mask is called in advice; other operators keep their name."""
    return "index_by_mask" if base_name(operator) == "index" else operator


def named_like(operators: Iterable[tuple[str, str]], word: str) -> str | None:
    """The first op whose operator is called as a converter's own word says (``BitwiseAnd``).

    Args:
        operators: Names of ops and their operators, in order.
        word: Of another naming.
    """
    wanted = _squeezed(word)
    return next((name for name, op in operators if _squeezed(base_name(op)) == wanted), None)


def _squeezed(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def checks_itself(operators: Iterable[tuple[str, str]]) -> str | None:
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


def depends_on_values(chain: Iterable[BaseException]) -> Any | None:
    """The exception that says a size depends on values, if one in the chain does."""
    return next((part for part in chain if type(part).__name__ in _BY_VALUE), None)
