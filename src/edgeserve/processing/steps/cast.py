"""dtype/1: numbers of another dtype."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgeserve.errors import ProcessingError
from edgeserve.types.steps import LevelStep
from edgeserve.types.tensors import DType

#: dtype/1 has no meaning for these: numpy lacks bfloat16, and a pixel is no word and no truth.
_NO_CAST = ("bfloat16", "bool", "string")


class Cast(LevelStep, frozen=True, tag_field="step", tag="dtype/1"):
    """Convert to ``dtype``: floats to integers round half to even and saturate."""

    rank: ClassVar = 3

    dtype: DType

    def apply(self, levels: np.ndarray) -> np.ndarray:
        """See `LevelStep.apply`.

        Raises:
            ProcessingError: EDGE-PROCESS-012, numpy has no such numbers.
        """
        if self.dtype in _NO_CAST:
            raise ProcessingError(
                "EDGE-PROCESS-012",
                "step 'dtype/1'",
                wanted="an integer or float dtype that numpy has",
                got=self.dtype,
                hint="let the model take float32 and convert inside the graph",
            )
        return cast(levels, self.dtype)


def cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert as dtype/1 says: floats to integers by rounding half to even, saturating.

    Floats to narrower floats round to the nearest and overflow to infinity, as IEEE 754 has it.
    """
    target = np.dtype(dtype)
    if target.kind == "f":
        with np.errstate(over="ignore"):
            return values.astype(target)
    low, high = np.iinfo(target).min, np.iinfo(target).max
    rounded = np.rint(values.astype(np.float64))
    # float(high) can be one more than high (int64): compare before converting, never after.
    inside = np.where((rounded > float(low)) & (rounded < float(high)), rounded, 0).astype(target)
    ends = np.where(rounded <= float(low), low, high).astype(target)
    return np.where((rounded <= float(low)) | (rounded >= float(high)), ends, inside)
