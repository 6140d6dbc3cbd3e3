"""depth/1: the depth of each pixel, read and compared."""

from __future__ import annotations

import numpy as np

from edgeserve.processing.arrays import check_numbers, wrong_outputs
from edgeserve.processing.outputs.reader import ModelOutputs, RecordReader, each_sample, flat_map
from edgeserve.tasks.base import DecisionCounts, DecisionRule, RecordComparison, count_flips
from edgeserve.tasks.depth import Depth, Depths

#: A depth that is off by more than this share of the reference's is another.
DEPTH_OFF = 0.1
#: No depth counts as smaller than this share of the picture's largest.
_FLOOR = 1e-3
#: The share of pixels whose change an error covers: single pixels on an edge say nothing.
_MOST = 99.0


def relative_error(reference: Depth, answer: Depth) -> np.ndarray:
    """How far each depth is off, as a share of the reference's: float64 [H, W]; NaN is infinite."""
    wanted, got = reference.map.astype(np.float64), answer.map.astype(np.float64)
    size = np.abs(wanted)
    floor = _FLOOR * float(size.max(initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(got - wanted) / np.maximum(size, floor)
    return np.asarray(np.where(got == wanted, 0.0, np.where(np.isnan(off), np.inf, off)))


def _compare(rule: DecisionRule, reference: Depth, answer: Depth, sure: float) -> DecisionCounts:
    every = np.ones(reference.map.shape, bool)
    if reference.map.shape != answer.map.shape:
        return count_flips(every, every)
    off = relative_error(reference, answer)
    return count_flips(off > DEPTH_OFF, every, {"abs_rel": float(off.mean())} if off.size else {})


def _gap(rule: DecisionRule, reference: Depth, answer: Depth) -> float:
    """What 99 of 100 pixels lie within, as a share of the reference's depth."""
    if reference.map.shape != answer.map.shape or not reference.map.size:
        return 0.0
    off = np.minimum(relative_error(reference, answer), 1.0)
    return float(np.percentile(off, _MOST))


def _describe(record: Depth) -> str:
    if not record.map.size:
        return "no pixel"
    low, middle, high = record.map.min(), np.median(record.map), record.map.max()
    return f"depth {low:.3g} to {high:.3g}, half of it below {middle:.3g}"


COMPARISON = RecordComparison(
    compare=_compare,
    margin=lambda rule, record: DEPTH_OFF if record.map.size else 0.0,
    gap=_gap,
    describe=_describe,
)


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
