"""One-sided 95 % bounds on a share, by Clopper and Pearson."""

from __future__ import annotations

from scipy.stats import beta  # type: ignore[import-untyped]

_RISK = 0.05


def lower(events: float, n: int) -> float:
    """What the share exceeds with 95 % confidence; ``events`` may be a sum of shares."""
    return float(beta.ppf(_RISK, events, n - events + 1)) if n and events > 0 else 0.0


def upper(events: float, n: int) -> float:
    """What the share stays below with 95 % confidence."""
    return float(beta.ppf(1 - _RISK, events + 1, n - events)) if n and events < n else 1.0
