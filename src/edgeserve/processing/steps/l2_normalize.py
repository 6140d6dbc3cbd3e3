"""l2_normalize/1 on an output."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.arrays import wrong_outputs
from edgeserve.types.steps import Feed, FieldKind, OutputStep

_LEAST_NORM = 1e-12


class L2Normalize(OutputStep, frozen=True, tag_field="step", tag="l2_normalize/1"):
    """Divide one sample's ``output`` by its L2 norm over the last axis, which is at least 1e-12."""

    output: str

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("embedding")

    def apply(self, value: np.ndarray, feed: Feed) -> np.ndarray:
        """See `OutputStep.apply`.

        Raises:
            ProcessingError: EDGE-PROCESS-008, it holds no vectors.
        """
        if value.ndim < 2 or value.dtype.kind != "f":
            got = f"{value.dtype} {list(value.shape)}"
            raise wrong_outputs(f"output {self.output!r} as floats [batch, d]", got)
        return l2_normalize(value)


def l2_normalize(values: np.ndarray) -> np.ndarray:
    """l2_normalize/1: divide by the L2 norm over the last axis, which counts as 1e-12 at least.

    In float64, where no square of a float32 overflows or vanishes, rounded once to float32.
    """
    exact = np.asarray(values, np.float64)
    norm = np.sqrt(np.square(exact).sum(axis=-1, keepdims=True))
    unit: np.ndarray = (exact / np.maximum(norm, _LEAST_NORM)).astype(np.float32)
    return unit
