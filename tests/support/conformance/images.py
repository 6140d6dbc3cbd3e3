"""Image steps and classifications: ``processing/cases.json`` and ``outputs.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from conformance.sounds import prepared
from edgeserve.errors import EdgeError
from edgeserve.processing import Processor
from edgeserve.tasks.classification import Classification
from edgeserve.types.processing import AnyOutputStep, InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["check_input_case", "check_output_case", "input_processor"]


def check_input_case(case: dict[str, Any], listing: dict[str, Any], folder: Path) -> str | None:
    """Run one case of ``cases.json``."""
    tensor = prepared(case, folder, input_processor)
    if tensor is None or isinstance(tensor, str):
        return tensor
    wanted = case["expected"]
    blob = (folder / listing["blob"]).read_bytes()
    data = blob[wanted["offset"] : wanted["offset"] + wanted["bytes"]]
    expected = np.frombuffer(data, tensor.dtype.newbyteorder("<")).reshape(tensor.shape)
    if tensor.tobytes() != expected.astype(tensor.dtype).tobytes():
        apart = np.abs(tensor.astype(np.float64) - expected)
        return f"{np.count_nonzero(apart)} values differ, by {apart.max():.6g} at most"
    return None


def input_processor(steps: tuple[InputStep, ...]) -> Processor:
    """A processor whose signature takes whatever size the steps make."""
    by_tag = {type(step).__struct_config__.tag: step for step in steps}
    dtype = "float32" if "normalize/1" in by_tag else "uint8"
    cast, layout = by_tag.get("dtype/1"), by_tag.get("layout/1")
    planar = layout is not None and layout.order == "CHW"
    spec = TensorSpec(
        name="x",
        dtype=cast.dtype if cast else dtype,
        shape=("n", 3, "h", "w") if planar else ("n", "h", "w", 3),
    )
    dims = {"n": (1, 64), "h": (1, 2**28), "w": (1, 2**28)}
    processing = Processing(inputs=(InputProcessing(name="x", steps=steps),))
    return Processor(processing, Signature(inputs=(spec,), outputs=(), dims=dims), "tensors")


def check_output_case(case: dict[str, Any], *_: object) -> str | None:
    """Run one case of ``outputs.json``."""
    outputs = {
        name: np.array([float(x) for x in o["values"]], o["dtype"]).reshape(o["shape"])
        for name, o in case["outputs"].items()
    }
    specs = tuple(
        TensorSpec(name=name, dtype=array.dtype.name, shape=("n", *array.shape[1:]))
        for name, array in outputs.items()
    )
    steps = tuple(msgspec.convert(case["steps"], list[AnyOutputStep]))
    try:
        signature = Signature(inputs=(), outputs=specs)
        processor = Processor(Processing(outputs=steps), signature, case["task"], case["labels"])
        records = processor.finish(outputs)
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {records} instead of {case['error']}"
    for record, wanted in zip(records, case["expected"], strict=True):
        if not isinstance(record, Classification):
            return f"gave a {type(record).__name__}"
        found = (record.index, list(record.indexes), record.label, [n for n, _ in record.top])
        names = [name for name, _ in wanted["top"]]
        if found != (wanted["index"], wanted["indexes"], wanted["label"], names):
            return f"gave {record}"
        scores = zip(record.top, wanted["top"], strict=True)
        if any(abs(have - want) > case["tolerance"] for (_, have), (_, want) in scores):
            return f"scores are off: {record}"
    return None
