"""softmax/1 on an output."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.arrays import softmax, wrong_outputs
from edgeserve.types.steps import Feed, FieldKind, OutputStep


class Softmax(OutputStep, frozen=True, tag_field="step", tag="softmax/1"):
    """Numerically stable softmax over ``axis`` of one sample's ``output``, in float32."""

    output: str
    axis: int = -1

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("logits", True, self.axis)

    def apply(self, value: np.ndarray, feed: Feed) -> np.ndarray:
        """See `OutputStep.apply`.

        Raises:
            ProcessingError: EDGE-PROCESS-008, the output has no such axis.
        """
        axis = self.axis + 1 if self.axis >= 0 else self.axis
        if not -value.ndim < axis < value.ndim:
            wanted = f"output {self.output!r} with axis {self.axis}"
            raise wrong_outputs(wanted, str(list(value.shape)))
        return softmax(value, axis)
