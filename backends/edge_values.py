"""Values at which an answer may turn: the constants that a program compares an input with.

`Edge` is such a constant, as `edgeserve.backends.session.Session.edges` finds it in a program.
`edge_values` makes numbers of them in an input's dtype: the constant, its neighbours, multiples.
Light: loads numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np


@dataclass(frozen=True)
class Edge:
    """A constant that an input meets, as a value of the input.

    Attributes:
        value: Where the answer may turn.
        period: It may turn at each multiple of this from there on; 0: only there.
        exact: No rounding lies between: the value itself and its neighbours are well defined.
    """

    value: float
    period: float = 0.0
    exact: bool = True


#: float32 holds every whole number up to this one.
_LAST_WHOLE = 1 << 24
#: A time in seconds of these days that float32 does not hold, and that 32 bits do.
_SECONDS = 1_700_000_001
#: Files may take 32 bits where a program takes 64.
_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1
#: Floats that fill masks are no thresholds.
_HUGE = 1e30
_MULTIPLES = (0, 1, -1, 2, 3, 7, 10, 1000)
#: How far from an edge behind arithmetic a value stays, as a share: clear of any rounding.
_CLEAR = 1e-3


def edge_values(edges: Iterable[Edge], dtype: np.dtype) -> np.ndarray:
    """Numbers on and beside edges, the most telling first, each once.

    Args:
        edges: Of one input.
        dtype: The input's.

    Returns:
        In that dtype: [n]; of an integer dtype also its own ends, or those of 32 bits that floats
        round; of any other dtype than floats and integers nothing.
    """
    if dtype.kind == "f":
        floats = zip_longest(*(_floats(edge, dtype) for edge in edges))
        return np.array(list(_unique(floats)), dtype)
    if dtype.kind not in "iu":
        return np.empty(0, dtype)
    info = np.iinfo(dtype)
    low, high = max(info.min, _LOWEST), min(info.max, _HIGHEST)
    whole = [*zip_longest(*(_integers(edge) for edge in edges)), _ends(dtype)]
    fitting = [value for value in _unique(whole) if low <= value <= high]
    return np.array(fitting, dtype)


def _unique(ranked: Iterable[Iterable[float | None]]) -> dict[float, None]:
    """All numbers in order of rank, without those that no edge gave."""
    return dict.fromkeys(value for rank in ranked for value in rank if value is not None)


def _floats(edge: Edge, dtype: np.dtype) -> Iterator[float]:
    """Values of a float input at one edge."""
    points = [edge.value + k * edge.period for k in _MULTIPLES] if edge.period else [edge.value]
    number, limit = dtype.type, min(_HUGE, float(np.finfo(dtype).max) / 2)
    for point in (each for each in points if abs(each) < limit):
        if edge.exact:
            yield float(number(point))
            yield from _neighbours(number(point), float(np.finfo(dtype).tiny))
        step = _CLEAR * max(abs(point), edge.period or 1.0)
        yield point + step
        yield point - step
        yield point + 1
        yield point - 1


def _neighbours(number: np.floating, tiny: float) -> tuple[float, float]:
    """The next float on each side; of zero the first that no engine flushes to zero."""
    if abs(number) < tiny:
        return tiny, -tiny
    up, down = (np.nextafter(number, type(number)(end)) for end in (np.inf, -np.inf))
    return float(up), float(down)


def _integers(edge: Edge) -> Iterator[int]:
    """Values of a whole-number input at one edge; multiples near the ends of what floats hold."""
    points = [edge.value]
    if edge.period:
        far = [math.floor((end - edge.value) / edge.period) for end in (_SECONDS, _LAST_WHOLE)]
        points += [edge.value + k * edge.period for k in (*far, *_MULTIPLES[1:])]
    for point in points:
        below, above = math.floor(point), math.ceil(point)
        yield from (below - 1, below, above, above + 1)


def _ends(dtype: np.dtype) -> tuple[int, ...]:
    """Ends of a narrow dtype; of a wide one the numbers around those that floats hold."""
    if dtype.itemsize < 4:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return _LAST_WHOLE - 1, _LAST_WHOLE, _LAST_WHOLE + 1, _SECONDS
