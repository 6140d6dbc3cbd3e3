"""Numbers of an ONNX file, through protobuf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dev.corpus.damage.file_parts import OpenFile, Part, Role
from edgeserve.types.artifact import Artifact

Readers = dict[str, list[tuple[Any, int, int]]]
_OPS = {"Conv": "conv", "Gemm": "linear", "MatMul": "linear", "Gather": "embedding"}
_PASS = {"DequantizeLinear", "QuantizeLinear", "Cast", "Mul", "Transpose", "Clip"}


def open_parts(artifact: Artifact, root: Path) -> OpenFile:
    """Initializers that hold weights, biases, scales and zero points."""
    model = onnx.load(root / artifact.entry)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    readers: Readers = {}
    for order, node in enumerate(model.graph.node):
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place, order))
    parts: list[Part] = []
    for node in model.graph.node:
        for name in node.input:
            if name in held and all(part.name != name for part in parts):
                part = _part(held[name], readers, held)
                parts += [part] if part else []
    parts.sort(key=lambda part: part.order)

    def write() -> dict[str, bytes]:
        for part in parts:
            held[part.name].CopyFrom(numpy_helper.from_array(part.array, part.name))
        return {artifact.entry: model.SerializeToString()}

    return OpenFile(parts, write)


def _part(tensor: Any, readers: Readers, held: Any) -> Part | None:
    array = numpy_helper.to_array(tensor).copy()
    node, place, order = readers[tensor.name][0]
    (op, layer), role = _op(tensor.name, readers), _role(array, node, place, held)
    order = order if layer < 0 else layer
    if role is None:
        return None
    channels = 1 if op == "linear" and node.op_type in ("MatMul",) else 0
    if op == "linear" and node.op_type == "Gemm":
        channels = 0 if any(a.name == "transB" and a.i for a in node.attribute) else 1
    owner = node.input[0] if place else ""
    return Part(tensor.name, role, array, channels, owner, op, order)


def _role(array: np.ndarray, node: Any, place: int, held: Any) -> Role | None:
    kind = node.op_type
    if kind in ("DequantizeLinear", "QuantizeLinear") and place:
        weights = kind == "DequantizeLinear" and node.input[0] in held
        names: tuple[Role, Role] = ("scale", "zero") if weights else ("range", "range-zero")
        return names[place - 1]
    if kind == "Mul" and array.size > 1 and array.dtype.kind == "f":
        return "scale"  # of weights that are cast up; or of a normalisation, which scales as well
    if array.dtype.kind not in "fiu" or array.dtype in (np.int64, np.int32) or array.size < 2:
        return "bias" if array.dtype == np.int32 and kind == "DequantizeLinear" else None
    if array.ndim >= 2 and min(array.shape[:2]) > 1:
        return "weight"
    return "bias" if kind in ("Add", "Conv", "Gemm") and array.dtype.kind == "f" else None


def _op(name: str, readers: Readers) -> tuple[str, int]:
    """The layer that a tensor ends in, through what unpacks it, and its place in the graph."""
    for node, _, order in readers.get(name, []):
        if node.op_type in _OPS:
            return _OPS[node.op_type], order
        if node.op_type in _PASS and (found := _op(node.output[0], readers))[0] != "other":
            return found
    return "other", -1
