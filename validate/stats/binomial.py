"""Bounds on a share of flipped decisions, from few and dependent observations. Pure arithmetic.

One family throughout: **one-sided 95 % Clopper-Pearson bounds** over the *effective* number of
inputs. With no flip the upper bound is ``1 - 0.05 ** (1 / n_eff)``. What is assumed, and why the
bounds are one-sided, stands in ``docs/explanation/verdicts.md``.

Sources:
    C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case
    of the binomial", Biometrika 26 (1934) 404-413.
    NIST Digital Library of Mathematical Functions, 8.17.22 and 8.17.23: continued fraction of the
    incomplete beta function.
    I. J. Thompson, A. R. Barnett, "Coulomb and Bessel functions of complex arguments and order",
    J. Comput. Phys. 64 (1986) 490-509: forward evaluation of continued fractions after Lentz.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from edgeserve.types.base import number
from edgeserve.types.reports import Rate

#: Probability with which each bound holds on its own.
CONFIDENCE = 0.95

_MAX_GROUPS = 10_000_000
_TINY = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function ``I_x(a, b)``, for ``a, b > 0`` and ``0 <= x <= 1``.

    The continued fraction converges fast below the mean of the beta distribution; above it the
    symmetry ``I_x(a, b) = 1 - I_{1-x}(b, a)`` brings the argument there.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    return front / _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """``1 + d1/(1 + d2/(1 + ...))``, evaluated forwards until the last bit stands still."""
    value, numerator, denominator = 1.0, 1.0, 0.0
    for m in range(100_000):
        for d in _coefficients(a, b, x, m):
            denominator = 1 / ((1 + d * denominator) or _TINY)
            numerator = (1 + d / numerator) or _TINY
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-16:
            break
    return value


def _coefficients(a: float, b: float, x: float, m: int) -> tuple[float, ...]:
    """``d_2m`` and ``d_2m+1`` of DLMF 8.17.23 (``d_0`` does not exist)."""
    odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    return (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), odd) if m else (odd,)


def beta_quantile(p: float, a: float, b: float) -> float:
    """The ``x`` with ``I_x(a, b) = p``, bisected to the last bit."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if incomplete_beta(a, b, middle) < p:
            low = middle
        else:
            high = middle
    return middle


def upper_bound(events: float, n: float) -> float:
    """The largest rate under which ``events`` or fewer of ``n`` are still seen in 5 % of cases.

    Both may be fractions (effective numbers); without any observation the bound is 1.
    """
    if events >= n:
        return 1.0
    if events <= 0:
        return float(-math.expm1(math.log(1 - CONFIDENCE) / n))
    return beta_quantile(CONFIDENCE, events + 1, n - events)


def lower_bound(events: float, n: float) -> float:
    """The smallest rate under which ``events`` or more of ``n`` are still seen in 5 % of cases."""
    if events <= 0 or n <= 0:
        return 0.0
    return beta_quantile(1 - CONFIDENCE, events, n - min(events, n) + 1)


def minimum_detectable_rate(n_eff: float) -> float:
    """The smallest flip rate that would have shown itself (at least one flip) in 95 % of cases."""
    return upper_bound(0, n_eff)


class Observation(NamedTuple):
    """What one input came to.

    Attributes:
        group: What it belongs to.
        events: How many of its decisions are events.
        n: How many decisions it holds; one without any is no observation.
    """

    group: str
    events: int
    n: int = 1


def rate(outcomes: Iterable[tuple[str, int] | tuple[str, int, int]]) -> Rate:
    """Share of events over inputs that fall into groups, with its bounds.

    A group counts as one observation: inputs of one photo or speaker are not independent, so the
    effective number of inputs is the number of groups. The events that these observations saw are
    read in two ways, by input (``share of inputs * groups``) and by group (each group's own share,
    summed); they agree for groups of equal size. The upper bound takes the larger, the lower bound
    the smaller.

    Where an input holds several decisions (boxes, pixels) they are observations of one input: a
    group's share counts once, however many it holds.

    Args:
        outcomes: Each an `Outcome`: group, events and, where it is not 1, how many decisions.
    """
    events: defaultdict[str, int] = defaultdict(int)
    totals: defaultdict[str, int] = defaultdict(int)
    for outcome in (Observation(*each) for each in outcomes):
        if outcome.n:
            events[outcome.group] += outcome.events
            totals[outcome.group] += outcome.n
    n, count, n_eff = sum(totals.values()), sum(events.values()), len(totals)
    by_input = count * n_eff / n if n else 0.0
    by_group = math.fsum(events[group] / totals[group] for group in totals)
    return Rate(
        count=count,
        n=n,
        rate=number(count / n if n else math.nan),
        lower=lower_bound(min(by_input, by_group), n_eff),
        upper=upper_bound(max(by_input, by_group), n_eff),
        n_eff=float(n_eff),
    )


def groups_needed(settled: Callable[[int], bool], start: int) -> int | None:
    """The smallest number of groups from ``start`` on that satisfies ``settled``; None beyond 10^7.

    ``settled`` must stay true once it is: bounds close in on a rate that does not change.
    """
    low, high = start - 1, max(start, 1)
    while not settled(high):
        low, high = high, 2 * high
        if high > _MAX_GROUPS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high
