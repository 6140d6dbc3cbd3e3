"""Runs edgeserve through every processing case and prints how many it gets right.

python spec/conformance/processing/run.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeserve.errors import EdgeError
from edgeserve.processing import Processor
from edgeserve.tasks.classification import Classification
from edgeserve.types.processing import AnyOutputStep, InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from run_readings import check_reading_case  # noqa: E402
from run_sounds import check_sound_case, made, sound_processor  # noqa: E402, F401
from run_text import check_batch_case, check_text_case, check_vector_case  # noqa: E402


def main() -> int:
    """Print the figures; exit code 1 when a case fails."""
    failed = []
    words = {
        "tensors": "byte-equal on every conformance case",
        "errors": "refused with the right code",
        "outputs": "right class, order and score on every output case",
        "texts": "the right tokens of every text",
        "batches": "every batch of texts padded right",
        "vectors": "every vector pooled and normalised right",
        "sounds": "the right samples and spectrum of every sound",
        "readings": "every box, mask, frame, span and token read right",
    }
    counts = {kind: [0, 0] for kind in words}
    for kind, case_id, problem in results():
        counts[kind][0] += problem is None
        counts[kind][1] += 1
        if problem:
            failed.append(f"{kind}: {case_id}: {problem}")
    for kind, (right, total) in counts.items():
        print(f"{words[kind]}: {right} of {total}")
    print("\n".join(failed), end="\n" if failed else "")
    return 1 if failed else 0


def results() -> Iterator[tuple[str, str, str | None]]:
    """Kind, id and problem (None: right) of every case."""
    listing = json.loads((HERE / "cases.json").read_text())
    blob = (HERE / listing["blob"]).read_bytes()
    for case in listing["cases"]:
        kind = "errors" if "error" in case else "tensors"
        yield kind, case["id"], check_input_case(case, blob)
    for case in json.loads((HERE / "outputs.json").read_text())["cases"]:
        yield "outputs", case["id"], check_output_case(case)
    listing = json.loads((HERE / "text.json").read_text())
    for case in listing["cases"]:
        kind = "errors" if "error" in case else "texts"
        yield kind, case["id"], check_text_case(case, listing["tokenizers"])
    for case in listing["batches"]:
        yield "batches", case["id"], check_batch_case(case, listing["tokenizers"])
    for case in json.loads((HERE / "vectors.json").read_text())["cases"]:
        yield "errors" if "error" in case else "vectors", case["id"], check_vector_case(case)
    listing = json.loads((HERE / "sounds.json").read_text())
    blob = (HERE / listing["blob"]).read_bytes()
    for case in listing["cases"]:
        yield "errors" if "error" in case else "sounds", case["id"], check_sound_case(case, blob)
    listing = json.loads((HERE / "readings.json").read_text())
    for case in listing["cases"]:
        kind = "errors" if "error" in case else "readings"
        yield kind, case["id"], check_reading_case(case, listing["tolerance"])


def check_input_case(case: dict[str, Any], blob: bytes) -> str | None:
    """Run one case of ``cases.json``; what is wrong, or None."""
    tensor = made(case, input_processor)
    if tensor is None or isinstance(tensor, str):
        return tensor
    wanted = case["expected"]
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


def check_output_case(case: dict[str, Any]) -> str | None:
    """Run one case of ``outputs.json``; what is wrong, or None."""
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


if __name__ == "__main__":
    sys.exit(main())
