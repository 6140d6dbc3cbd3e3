"""The formulas of ``spec/golden.md``, over plain lists."""

from __future__ import annotations

import math

__all__ = ["INF", "NAN", "difference", "distance", "leads", "spelled"]

INF, NAN = math.inf, math.nan


def spelled(x: float) -> float | str:
    """JSON has no number for these."""
    return x if math.isfinite(x) else str(x)


def difference(wanted: list[float], got: list[float], scale: float, whole: bool = False) -> float:
    """Largest distance over the part's scale."""

    def infinite(x: float) -> float:
        return math.copysign(INF, x) if abs(x) >= 1e30 else x

    pairs = [(infinite(float(a)), infinite(float(b))) for a, b in zip(wanted, got, strict=True)]
    finite = [(a, b) for a, b in pairs if math.isfinite(a)]
    for a, b in pairs:
        same = a == b or (math.isnan(a) and math.isnan(b))
        if not math.isfinite(a) and not same:
            return INF
    if not all(math.isfinite(b) for _, b in finite):
        return INF
    largest = 0.0 if whole else max((abs(a) for a, _ in finite), default=0.0)
    return max((abs(a - b) for a, b in finite), default=0.0) / max(scale, largest)


def unit(vector: list[float]) -> list[float]:
    length = math.hypot(*vector)
    return [x / length for x in vector] if length else list(vector)


def distance(first: list[float], second: list[float]) -> float:
    """Cosine distance."""
    if any(first) != any(second):
        return 1.0
    return sum((a - b) ** 2 for a, b in zip(unit(first), unit(second), strict=True)) / 2


def leads(vectors: list[list[float]]) -> list[tuple[int, float]]:
    """Each one's nearest other vector, and how far it leads the next."""
    found = []
    for i, one in enumerate(vectors):
        near = [
            (sum(a * b for a, b in zip(unit(one), unit(other), strict=True)), j)
            for j, other in enumerate(vectors)
            if j != i
        ]
        best = max(cosine for cosine, _ in near)
        index = min(j for cosine, j in near if cosine >= best - 1e-9)
        own = next(cosine for cosine, j in near if j == index)
        second = max((cosine for cosine, j in near if j != index), default=own)
        found.append((index, max(own - second, 0.0)))
    return found
