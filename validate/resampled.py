"""A metric against true answers that is no sum over inputs: bounds by resampling whole groups.

Mean average precision, mean overlap of classes and F1 are read from all inputs at once. How far
their difference between artifact and reference may be off is seen by drawing as many groups as
there are, with replacement, and reading both again, on the same draw.

Sources:
    B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", Chapman & Hall 1993, chapter 6
    (standard errors) and section 8.5 (units that are independent are what is drawn).
    For the quantile and the sign test see `edgeserve.validate.paired`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from edgeserve.types.base import number
from edgeserve.types.reports import MetricStats
from edgeserve.validate.labels import chance
from edgeserve.validate.paired import student

__all__ = ["DRAWS", "Evaluate", "resampled_stats"]

#: How often groups are drawn. A standard error is then known to about 4 %.
DRAWS = 400
_SEED = 0
_Row = TypeVar("_Row", contravariant=True)
_Kept = TypeVar("_Kept")


class Evaluate(Protocol[_Row]):
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


def resampled_stats(
    rows: Sequence[tuple[str, _Kept]], evaluate: Evaluate[_Kept]
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
        _stats(name, values, np.stack([each[name][:, 0] for each in alone]), len(rows))
        for name, values in whole.items()
        if not np.isnan(values[:, 0]).any()
    )


def _stats(name: str, values: np.ndarray, alone: np.ndarray, inputs: int) -> MetricStats:
    """Figures of one metric: of all, [2, 1 + draws], and of each group by itself, [groups, 2]."""
    reference, artifact = values[:, 0].tolist()
    far = _far(values[1, 1:] - values[0, 1:], len(alone))
    more = alone[:, 1] - alone[:, 0]  # NaN: the group has nothing to read it from
    lost, won = int((more < 0).sum()), int((more > 0).sum())
    apart = artifact - reference
    return MetricStats(
        metric=name,
        inputs=inputs,
        groups=len(alone),
        reference=number(reference),
        artifact=number(artifact),
        lower=number(max(-1.0, apart - far)),
        upper=number(min(1.0, apart + far)),
        lost=lost,
        won=won,
        p=number(chance(lost, won)),
        more_is_better=True,
    )


def _far(apart: np.ndarray, groups: int) -> float:
    """How far, at one-sided 95 %, the true difference may lie from what was seen."""
    known = apart[np.isfinite(apart)]
    if groups < 2 or len(known) < 2:
        return math.inf
    error = float(known.std(ddof=1)) * math.sqrt(groups / (groups - 1))
    return student(groups - 1) * error
