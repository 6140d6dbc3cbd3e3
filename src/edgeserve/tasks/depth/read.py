"""depth/1: the depth of each pixel."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.outputs.checks import (
    ModelOutputs,
    RecordReader,
    check_numbers,
    each_sample,
    flat_map,
    wrong_outputs,
)
from edgeserve.tasks.depth import Depth, Depths

__all__ = ["depth", "reader"]


def reader(model: ModelOutputs) -> RecordReader:
    """Reads a map of each sample."""
    step = model.step
    assert isinstance(step, Depths)
    return each_sample(step.output, lambda value: depth(step, value))


def depth(step: Depths, value: np.ndarray) -> Depth:
    """depth/1 on one sample: [height, width], axes of size 1 around it.

    Raises:
        ProcessingError: EDGE-PROCESS-008 (form), -009 (NaN or infinity).
    """
    if value.dtype.kind != "f":
        raise wrong_outputs(f"output {step.output!r} as floats", str(value.dtype))
    return Depth(map=check_numbers(np.asarray(flat_map(value), np.float32), "depth"))
