"""Sound steps: ``processing/sounds.json``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.errors import EdgeError
from edgeserve.processing import Processor
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.types.processing import AnyStep, InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["check_sound_case", "prepared", "sound_processor"]


def prepared(
    case: dict[str, Any], folder: Path, processor: Callable[[tuple[InputStep, ...]], Processor]
) -> np.ndarray | str | None:
    """The tensor of a case that wants one, of its dtype and shape; else what is wrong, or None."""
    raw = (folder / case["input"]).read_bytes()
    try:
        steps = tuple(msgspec.convert(case["steps"], list[AnyStep]))
        tensor = processor(steps).prepare(raw)["x"]
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {tensor.dtype} {list(tensor.shape)} instead of {case['error']}"
    wanted = case["expected"]
    if (tensor.dtype.name, list(tensor.shape)) != (wanted["dtype"], wanted["shape"]):
        return f"gave {tensor.dtype} {list(tensor.shape)}"
    return tensor


def check_sound_case(case: dict[str, Any], listing: dict[str, Any], folder: Path) -> str | None:
    """Run one case."""
    tensor = prepared(case, folder, sound_processor)
    if tensor is None or isinstance(tensor, str):
        return tensor
    wanted = case["expected"]
    blob = (folder / listing["blob"]).read_bytes()
    values = np.frombuffer(blob, "<f4", wanted["bytes"] // 4, wanted["offset"])
    expected = values.reshape(wanted["shape"]).astype(np.float64)
    apart = np.abs(tensor - expected)
    # Loud floats are not held closer than float32 can tell them apart.
    if (apart > case["tolerance"] * np.maximum(1, np.abs(expected))).any():
        return f"values differ, by {apart.max():.6g} at most"
    return None


def sound_processor(steps: tuple[InputStep, ...]) -> Processor:
    """A processor whose signature takes whatever the steps make of a sound."""
    mel = any(isinstance(step, LogMel) for step in steps)
    shape = ("n", "a", "b") if mel else ("n", "a")
    spec = TensorSpec(name="x", dtype="float32", shape=shape)
    processing = Processing(inputs=(InputProcessing(name="x", steps=steps),))
    dims = {dim: (1, 1 << 28) for dim in shape}
    return Processor(processing, Signature(inputs=(spec,), outputs=(), dims=dims), "tensors")
