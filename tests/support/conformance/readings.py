"""Records of many decisions read from outputs: ``processing/readings.json``."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np

from edgeserve.errors import EdgeError
from edgeserve.processing import Processor
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.processing import AnyOutputStep, AnyStep, InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec

__all__ = ["check_reading_case"]


def check_reading_case(case: dict[str, Any], listing: dict[str, Any], *_: object) -> str | None:
    """Run one case."""
    outputs = {
        name: np.array([float(x) for x in o["values"]]).reshape(o["shape"]).astype(o["dtype"])
        for name, o in case["outputs"].items()
    }
    try:
        records = _finished(case, outputs)
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {records} instead of {case['error']}"
    wanted = [decode(json.dumps(each), AnyRecord) for each in case["expected"]]
    if len(records) != len(wanted):
        return f"{len(records)} records"
    pairs = zip(records, wanted, strict=True)
    return next((told for pair in pairs if (told := _apart(*pair, listing["tolerance"]))), None)


def _finished(case: dict[str, Any], outputs: dict[str, np.ndarray]) -> list[Any]:
    specs = tuple(
        TensorSpec(name=name, dtype=array.dtype.name, shape=("n", *array.shape[1:]))
        for name, array in outputs.items()
    )
    mask = TensorSpec(name="m", dtype="int64", shape=("n", "t"))
    image = TensorSpec(name="x", dtype="uint8", shape=("n", "h", "w", 3))
    steps = tuple(msgspec.convert(case.get("inputs", []), list[AnyStep]))
    made = (InputProcessing(name="x", steps=steps),) if steps else ()
    signature = Signature(
        inputs=(image,) if steps else (mask,),
        outputs=specs,
        dims={"n": (1, 64), "h": (1, 999), "w": (1, 999), "t": (1, 99)},
    )
    reads = tuple(msgspec.convert(case["steps"], list[AnyOutputStep]))
    processing = Processing(inputs=made, outputs=reads)
    processor = Processor(processing, signature, case["task"], case["labels"])
    feed = {name: np.array(rows) for name, rows in case.get("feed", {}).items()}
    if steps:
        feed = processor.batch([processor.prepare(np.zeros((*case["photo"], 3), np.uint8))])
    return processor.finish(outputs, feed or None)


def _apart(got: Any, wanted: Any, tolerance: float) -> str | None:
    """Where two records differ; None where they do not."""
    if type(got) is not type(wanted):
        return f"gave a {type(got).__name__}"
    for field in msgspec.structs.fields(type(wanted)):
        one, other = getattr(got, field.name), getattr(wanted, field.name)
        if isinstance(other, np.ndarray):
            if one is None or one.shape != other.shape:
                return f"{field.name}: gave {one}"
            if not np.allclose(one, other, rtol=tolerance, atol=tolerance):
                return f"{field.name}: gave {one.tolist()}"
        elif field.name == "spans":
            names = [(s.start, s.end, s.label, round(s.score, 5)) for s in one]
            if names != [(s.start, s.end, s.label, round(s.score, 5)) for s in other]:
                return f"spans: gave {names}"
        elif field.name == "margins":
            if not np.allclose(one, other, rtol=tolerance, atol=tolerance):
                return f"margins: gave {one}"
        elif one != other:
            return f"{field.name}: gave {one!r}"
    return None
