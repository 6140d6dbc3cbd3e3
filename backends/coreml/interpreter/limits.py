"""A bound on what a kernel makes before its result: attributes of ten bytes can ask for terabytes.

The plan bounds every value whose shape the program fixes. This bounds the rest: padded inputs, and
results whose shape is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgeserve.backends.coreml.interpreter.steps import MAX_ELEMENTS
from edgeserve.errors import MilError

__all__ = ["check_shape"]


def check_shape(shape: Iterable[int], what: str) -> None:
    """See that a tensor is worth making.

    Args:
        shape: What it would have.
        what: What it is ("a padded input"), for the error.

    Raises:
        MilError: EDGE-MIL-004, a size is negative or the elements are too many.
    """
    sizes = [int(size) for size in shape]
    if min(sizes, default=0) < 0 or math.prod(sizes) > MAX_ELEMENTS:
        raise MilError(
            "EDGE-MIL-004",
            what,
            wanted=f"at most {MAX_ELEMENTS} elements",
            got=f"shape {sizes}",
            hint="make the package again; no phone could hold this tensor",
        )
