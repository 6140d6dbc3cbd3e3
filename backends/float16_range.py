"""How large numbers get in a graph that is to be computed in float16, in whatever format.

A format finds its constants and says what kind each operation is of; what follows for the size of a
result is the same everywhere.
"""

from __future__ import annotations

import numpy as np

#: Beyond this float16 counts in fours: what is added to such a constant loses its digits.
EXACT_INTEGER_MAX = 4096.0

#: What a mask that is an input may hold.
MASK_MAGNITUDE = float(np.finfo(np.float32).max)


def largest_finite(array: np.ndarray) -> float:
    """The largest finite |number| of an array of floats; 0 where it has none."""
    return float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))


def result_magnitude(
    constant: float, read: float, *, bound: bool, product: bool, quotient: bool, bounded: bool
) -> float | None:
    """How large the results of an operation may be; None where it reads nothing out of range.

    A factor may bring numbers back; one that is not constant is taken to do so.

    Args:
        constant: The largest |number| of the constants that it reads; 0 where it reads none.
        read: Of the results beyond `EXACT_INTEGER_MAX` that it reads; 0 where it reads none.
        bound: Its constants are bounds on values, for which float16's infinity is as good.
        product: It multiplies.
        quotient: It divides.
        bounded: Its results are of their own size, whatever it reads.
    """
    own = constant if constant > EXACT_INTEGER_MAX and not bound else 0.0
    if not own and not read:
        return None
    if read and product:
        return read * constant
    if read and quotient:
        return read / constant if constant else 0.0
    return 0.0 if bounded else max(own, read)
