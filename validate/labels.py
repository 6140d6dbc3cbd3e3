"""With true labels: is the artifact less often right than the reference, on the same inputs.

Both answer the same inputs, so that only those on which one is right and the other wrong tell them
apart: a paired test, of the *difference*. Inputs of one group count as one, as everywhere.

Sources:
    Q. McNemar, "Note on the sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947) 153-157; here its exact, one-sided form.
    A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions",
    Statistics in Medicine 24 (2005) 729-740: half an input more in each of the four cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeserve.types.base import number
from edgeserve.types.reports import LabelStats
from edgeserve.validate.bounds import incomplete_beta

__all__ = ["Marked", "chance", "difference_bounds", "label_stats"]

#: One-sided 95 %.
_Z = 1.6448536269514722


@dataclass(frozen=True)
class Marked:
    """One input whose true label is known: its group, and who was right about it."""

    group: str
    reference: bool
    artifact: bool


def label_stats(marked: Sequence[Marked], metric: str = "top-1") -> LabelStats | None:
    """How often each is right, and what is known of the difference; None without any label."""
    if not marked:
        return None
    n, groups = len(marked), len({each.group for each in marked})
    lost = sum(each.reference and not each.artifact for each in marked)
    won = sum(each.artifact and not each.reference for each in marked)
    share = groups / n  # of an input, in effective numbers
    lower, upper = difference_bounds(lost * share, won * share, groups)
    return LabelStats(
        metric=metric,
        inputs=n,
        groups=groups,
        reference=number(sum(each.reference for each in marked) / n),
        artifact=number(sum(each.artifact for each in marked) / n),
        lost=lost,
        won=won,
        lower=number(lower),
        upper=number(upper),
        p=number(chance(lost * share, won * share)),
    )


def difference_bounds(lost: float, won: float, n: float) -> tuple[float, float]:
    """One-sided 95 % bounds of "artifact right minus reference right", after Agresti and Min.

    Approximate: they hold in 93 % of cases where the true difference is far from zero and rare.
    No verdict rests on them.
    """
    size = n + 2
    middle = (won - lost) / size
    spread = math.sqrt(max(0.0, (lost + won + 1) - (won - lost) ** 2 / size)) / size
    return max(-1.0, middle - _Z * spread), min(1.0, middle + _Z * spread)


def chance(lost: float, won: float) -> float:
    """Probability that of all inputs on which one alone is right, so many go to the reference.

    ``P(X >= lost)`` for X binomial over ``lost + won`` with one half; whole numbers are not needed.
    """
    return incomplete_beta(lost, won + 1, 0.5) if lost > 0 else 1.0
