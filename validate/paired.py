"""A metric with true labels on both sides: the same inputs, and a paired test of the difference.

For metrics that are a sum of costs over a sum of sizes: word errors over words, nats over tokens.
What differs is looked at group by group, since inputs of one group err together.

Sources:
    W. G. Cochran, "Sampling Techniques", Wiley 1977, chapter 6: a ratio of two sums and its
    standard error from the residuals of its clusters.
    W. J. Dixon, A. M. Mood, "The statistical sign test", J. Amer. Statist. Assoc. 41 (1946)
    557-566.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgeserve.types.base import number
from edgeserve.types.reports import MetricStats
from edgeserve.validate.bounds import CONFIDENCE, beta_quantile
from edgeserve.validate.labels import chance

__all__ = ["Cost", "metric_stats", "student"]


@dataclass(frozen=True)
class Cost:
    """One input with a true label: its group, what each side pays, and how much there was of it."""

    group: str
    reference: float
    artifact: float
    size: float


def metric_stats(
    metric: str, costs: Sequence[Cost], shown: Callable[[float], float] = float
) -> MetricStats | None:
    """What both sides pay, and what is known of the difference; None without any label.

    Args:
        metric: Its name; less is better.
        costs: One an input.
        shown: From the mean cost to the metric's own unit, rising (``math.exp`` for a perplexity).
    """
    size = math.fsum(each.size for each in costs)
    if not size:
        return None
    reference = math.fsum(each.reference for each in costs) / size
    artifact = math.fsum(each.artifact for each in costs) / size
    groups = _grouped(costs)
    apart = artifact - reference
    far = _far([cost - apart * held for cost, held in groups], size)
    lost, won = sum(cost > 0 for cost, _ in groups), sum(cost < 0 for cost, _ in groups)
    return MetricStats(
        metric=metric,
        inputs=len(costs),
        groups=len(groups),
        reference=number(shown(reference)),
        artifact=number(shown(artifact)),
        lower=number(shown(reference + apart - far) - shown(reference)),
        upper=number(shown(reference + apart + far) - shown(reference)),
        lost=lost,
        won=won,
        p=number(chance(lost, won)),
    )


def _grouped(costs: Iterable[Cost]) -> list[tuple[float, float]]:
    """Of each group: by how much the artifact pays more, and its size."""
    more: defaultdict[str, float] = defaultdict(float)
    sizes: defaultdict[str, float] = defaultdict(float)
    for each in costs:
        more[each.group] += each.artifact - each.reference
        sizes[each.group] += each.size
    return [(more[group], sizes[group]) for group in sizes]


def _far(residuals: Sequence[float], size: float) -> float:
    """How far, at one-sided 95 %, the true difference may lie from what was seen."""
    n = len(residuals)
    if n < 2:
        return math.inf
    error = math.sqrt(n / (n - 1) * math.fsum(r * r for r in residuals)) / size
    return student(n - 1) * error


def student(freedom: int) -> float:
    """The 95 % quantile of Student's distribution."""
    x = beta_quantile(2 * (1 - CONFIDENCE), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x)
