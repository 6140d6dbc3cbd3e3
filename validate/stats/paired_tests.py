"""Reference and artifact on the same inputs, against ground truth: paired tests of the difference.

Top-1: only the inputs on which one is right and the other wrong tell the two apart, so the test
is of the *difference* (McNemar; bounds after Agresti and Min).

Costs (word errors over words, nats over tokens): a sum of costs over a sum of sizes, and its
standard error from the residuals of the groups.

Metrics that are read from all inputs at once (mean average precision, mean IoU, F1): bounds by
bootstrap. As many groups as there are are drawn, with replacement, and both sides are read
again, on the same draw.

Inputs of one group err together and count as one, as everywhere.

Sources:
    Q. McNemar, "Note on the sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947) 153-157; here its exact, one-sided form.
    A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions",
    Statistics in Medicine 24 (2005) 729-740: half an input more in each of the four cells.
    W. G. Cochran, "Sampling Techniques", Wiley 1977, chapter 6: a ratio of two sums and its
    standard error from the residuals of its clusters.
    W. J. Dixon, A. M. Mood, "The statistical sign test", J. Amer. Statist. Assoc. 41 (1946)
    557-566.
    B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", Chapman & Hall 1993, chapter
      6
    (standard errors) and section 8.5 (units that are independent are what is drawn).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from edgeserve.types.base import number
from edgeserve.types.reports import LabelStats, MetricStats
from edgeserve.validate.stats.binomial import CONFIDENCE, beta_quantile, incomplete_beta

#: One-sided 95 %.
_Z = 1.6448536269514722


@dataclass(frozen=True)
class LabelOutcome:
    """One input whose true label is known: its group, and who was right about it."""

    group: str
    reference: bool
    artifact: bool


def label_stats(marked: Sequence[LabelOutcome], metric: str = "top-1") -> LabelStats | None:
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
        p=number(mcnemar_p(lost * share, won * share)),
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


def mcnemar_p(lost: float, won: float) -> float:
    """Probability that of all inputs on which one alone is right, so many go to the reference.

    ``P(X >= lost)`` for X binomial over ``lost + won`` with one half; whole numbers are not needed.
    """
    return incomplete_beta(lost, won + 1, 0.5) if lost > 0 else 1.0


@dataclass(frozen=True)
class PairedCost:
    """One input with a true label: its group, what each side pays, and how much there was of it."""

    group: str
    reference: float
    artifact: float
    size: float


def ratio_stats(
    metric: str, costs: Sequence[PairedCost], shown: Callable[[float], float] = float
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
    groups = _sum_by_group(costs)
    apart = artifact - reference
    far = _ratio_margin([cost - apart * held for cost, held in groups], size)
    bounds = [shown(reference + end) - shown(reference) for end in (apart - far, apart + far)]
    sides, more = (shown(reference), shown(artifact)), np.array([cost for cost, _ in groups])
    return _metric_stats(metric, len(costs), sides, bounds, worse=more > 0, better=more < 0)


def _metric_stats(
    metric: str,
    inputs: int,
    sides: Sequence[float],
    bounds: Sequence[float],
    worse: np.ndarray,
    better: np.ndarray,
) -> MetricStats:
    """Figures of the reference and the artifact, and in which groups the artifact is which."""
    (reference, artifact), (lower, upper) = map(number, sides), map(number, bounds)
    lost, won = int(worse.sum()), int(better.sum())
    return MetricStats(
        metric=metric,
        inputs=inputs,
        groups=len(worse),
        reference=reference,
        artifact=artifact,
        lower=lower,
        upper=upper,
        lost=lost,
        won=won,
        p=number(mcnemar_p(lost, won)),
    )


def _sum_by_group(costs: Iterable[PairedCost]) -> list[tuple[float, float]]:
    """Of each group: by how much the artifact pays more, and its size."""
    more: defaultdict[str, float] = defaultdict(float)
    sizes: defaultdict[str, float] = defaultdict(float)
    for each in costs:
        more[each.group] += each.artifact - each.reference
        sizes[each.group] += each.size
    return [(more[group], sizes[group]) for group in sizes]


def _ratio_margin(residuals: Sequence[float], size: float) -> float:
    """How far, at one-sided 95 %, the true difference may lie from what was seen."""
    n = len(residuals)
    if n < 2:
        return math.inf
    error = math.sqrt(n / (n - 1) * math.fsum(r * r for r in residuals)) / size
    return student_quantile(n - 1) * error


def student_quantile(freedom: int) -> float:
    """The 95 % quantile of Student's distribution."""
    x = beta_quantile(2 * (1 - CONFIDENCE), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x)


#: How often groups are drawn. A standard error is then known to about 4 %.
DRAWS = 400
_SEED = 0
_Row = TypeVar("_Row", contravariant=True)
_Kept = TypeVar("_Kept")


class MetricFunction(Protocol[_Row]):
    """Reads the metrics of both sides."""

    def __call__(
        self, groups: Sequence[Sequence[_Row]], weights: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """All metrics of one task.

        Args:
            groups: What is known of the inputs, group by group.
            weights: How often each group counts: float64 [draws, groups].

        Returns:
            By name of the metric, float64 [2, draws]: the reference's and the artifact's; NaN
            where there is nothing to read it from. More is better.
        """


def bootstrap_stats(
    rows: Sequence[tuple[str, _Kept]], evaluate: MetricFunction[_Kept]
) -> tuple[MetricStats, ...]:
    """What both sides come to, and what is known of the difference; nothing without any row.

    Args:
        rows: Of each input with a true answer, its group and what ``evaluate`` reads.
        evaluate: The task's metrics.
    """
    grouped: defaultdict[str, list[_Kept]] = defaultdict(list)
    for group, row in rows:
        grouped[group].append(row)
    if not grouped:
        return ()
    groups = list(grouped.values())
    n = len(groups)
    drawn = np.random.default_rng(_SEED).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    whole = evaluate(groups, np.concatenate([np.ones((1, n)), drawn]))
    alone = [evaluate([group], np.ones((1, 1))) for group in groups]
    return tuple(
        _bootstrap_metric(name, values, np.stack([each[name][:, 0] for each in alone]), len(rows))
        for name, values in whole.items()
        if not np.isnan(values[:, 0]).any()
    )


def _bootstrap_metric(name: str, values: np.ndarray, alone: np.ndarray, inputs: int) -> MetricStats:
    """Figures of one metric: of all, [2, 1 + draws], and of each group by itself, [groups, 2]."""
    reference, artifact = sides = values[:, 0].tolist()
    far = _bootstrap_margin(values[1, 1:] - values[0, 1:], len(alone))
    more = alone[:, 1] - alone[:, 0]  # NaN: the group has nothing to read it from
    bounds = max(-1.0, artifact - reference - far), min(1.0, artifact - reference + far)
    stats = _metric_stats(name, inputs, sides, bounds, worse=more < 0, better=more > 0)
    return msgspec.structs.replace(stats, more_is_better=True)


def _bootstrap_margin(apart: np.ndarray, groups: int) -> float:
    """How far, at one-sided 95 %, the true difference may lie from what was seen."""
    known = apart[np.isfinite(apart)]
    if groups < 2 or len(known) < 2:
        return math.inf
    error = float(known.std(ddof=1)) * math.sqrt(groups / (groups - 1))
    return student_quantile(groups - 1) * error
