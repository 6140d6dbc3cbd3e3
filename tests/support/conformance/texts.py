"""Texts, their batches, and pooling: ``processing/text.json`` and ``vectors.json``."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from edgeserve.errors import EdgeError
from edgeserve.processing import Processor
from edgeserve.processing.steps.tokenize import Tokenize, TokenizePart
from edgeserve.tasks.embedding import Embedding
from edgeserve.types.artifact import FileEntry
from edgeserve.types.processing import AnyOutputStep, InputProcessing, Processing
from edgeserve.types.tensors import Shape, Signature, TensorSpec

__all__ = ["check_batch_case", "check_text_case", "check_vector_case", "text_processor"]

PARTS = get_args(TokenizePart)
Json = dict[str, Any]


def text_processor(case: Json, tokenizers: Json, folder: Path) -> Processor:
    """A processor of the three parts that a case asks for."""
    asset = FileEntry(**tokenizers[case["tokenizer"]])
    length = case.get("length", [1, case.get("longest", 512)])
    axis: int | str = length if isinstance(length, int) else "tokens"
    dims = {"n": (1, 64)} | ({} if isinstance(length, int) else {"tokens": tuple(length)})
    specs = [
        TensorSpec(name=part, dtype=case.get("dtype", "int64"), shape=("n", axis)) for part in PARTS
    ]
    inputs = []
    for part in PARTS:
        pad = case.get("pad_id", 0) if part == "ids" else 0
        step = Tokenize(tokenizer=asset, part=part, pad_id=pad, **case["step"])
        inputs.append(InputProcessing(name=part, steps=(step,)))
    return Processor(
        Processing(inputs=tuple(inputs)),
        Signature(inputs=tuple(specs), outputs=(), dims=dims),
        "tensors",
        assets=lambda path: (folder / path).read_bytes(),
    )


def raw_text(case: Json) -> str | bytes:
    """The raw input of a case."""
    if "utf8" in case:
        return bytes.fromhex(case["utf8"])
    if "utf16" in case:
        units = struct.pack(f"<{len(case['utf16'])}H", *case["utf16"])
        return units.decode("utf-16-le", errors="surrogatepass")
    if "pieces" in case:
        return "".join(piece * times for piece, times in case["pieces"])
    return str(case["text"])


def check_text_case(case: Json, listing: Json, folder: Path) -> str | None:
    """Run one of ``cases`` of ``text.json``."""
    try:
        sample = text_processor(case, listing["tokenizers"], folder).prepare(raw_text(case))
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {sample} instead of {case['error']}"
    return _differs({name: row.tolist() for name, row in sample.items()}, case["expected"])


def check_batch_case(case: Json, listing: Json, folder: Path) -> str | None:
    """Run one of ``batches`` of ``text.json``."""
    processor = text_processor(case, listing["tokenizers"], folder)
    batch = processor.batch([processor.prepare(text) for text in case["texts"]])
    if any(array.dtype != case["dtype"] for array in batch.values()):
        return f"gave {[array.dtype.name for array in batch.values()]}"
    return _differs({name: rows.tolist() for name, rows in batch.items()}, case["expected"])


def _differs(found: Json, wanted: Json) -> str | None:
    wrong = [part for part in PARTS if found[part] != wanted[part]]
    return None if not wrong else f"{wrong[0]}: gave {found[wrong[0]]}"


def check_vector_case(case: Json, *_: object) -> str | None:
    """Run one case of ``vectors.json``."""
    output = case["output"]
    y = np.array([float(x) for x in output["values"]], output["dtype"]).reshape(output["shape"])
    feed = {"m": np.array(case["mask"])} if isinstance(case["mask"], list) else None
    try:
        records = _vector_processor(case, y).finish({"y": y}, feed)
    except EdgeError as error:
        return None if error.code == case.get("error") else f"raised {error}"
    if "error" in case:
        return f"gave {records} instead of {case['error']}"
    if not all(isinstance(record, Embedding) for record in records):
        return f"gave {records}"
    found = np.stack([record.vector for record in records if isinstance(record, Embedding)])
    wanted = np.array(case["expected"]["values"]).reshape(case["expected"]["shape"])
    if (found.dtype, found.shape) != (np.float32, wanted.shape):
        return f"gave {found.dtype} {list(found.shape)}"
    apart = np.abs(found - wanted).max(initial=0)
    near = apart <= case["tolerance"] * np.abs(wanted).max(initial=0)
    return None if near else f"is off by {apart:.3g}: {found.tolist()}"


def _vector_processor(case: Json, y: np.ndarray) -> Processor:
    mask = TensorSpec(name="m", dtype="int64", shape=("n", "tokens"))
    dtype: Any = y.dtype.name
    shape: Shape = ("n", "tokens", y.shape[-1]) if y.ndim == 3 else ("n", y.shape[-1])
    signature = Signature(
        inputs=(mask,),
        outputs=(TensorSpec(name="y", dtype=dtype, shape=shape),),
        dims={"n": (1, 8), "tokens": (1, 8)},
    )
    steps = tuple(msgspec.convert(case["steps"], list[AnyOutputStep]))
    return Processor(Processing(outputs=steps), signature, "feature-extraction")
