"""Numbers of a TFLite file, through the schema's own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dev.corpus.damage.file_parts import OpenFile, Part, Role
from edgeserve.backends.tflite.schema import op_type, read_model, tensor_dtype, write_model
from edgeserve.types.artifact import Artifact

_OPS = {
    "CONV_2D": "conv",
    "DEPTHWISE_CONV_2D": "conv",
    "FULLY_CONNECTED": "linear",
    "BATCH_MATMUL": "linear",
    "GATHER": "embedding",
    "EMBEDDING_LOOKUP": "embedding",
}
_STORED = {"float32": np.float32, "float16": np.float16, "int8": np.int8, "int32": np.int32}


def open_parts(artifact: Artifact, root: Path) -> OpenFile:
    """Constant tensors that layers read, and the scales and zero points of all tensors."""
    model = read_model(root / artifact.entry)
    parts: list[Part] = []
    backs: list[tuple[Part, Any, str]] = []
    for graph in model.subgraphs:
        layers = _layers(model, graph)
        made_by = {int(t): i for i, op in enumerate(graph.operators) for t in op.outputs}
        for i, tensor in enumerate(graph.tensors):
            if (part := _constant(model, tensor, layers.get(i))) is not None:
                backs.append((part, model.buffers[tensor.buffer], "data"))
            backs += _scales(model, tensor, part, made_by.get(i, -1))
    parts = sorted((part for part, _, _ in backs), key=lambda part: part.order)

    def write() -> dict[str, bytes]:
        for part, holder, field in backs:
            raw = np.ascontiguousarray(part.array)
            value = np.frombuffer(raw.tobytes(), np.uint8) if field == "data" else raw
            setattr(holder, field, value)
        return {artifact.entry: write_model(model)}

    return OpenFile(parts, write, channels_last=True)


def _layers(model: Any, graph: Any) -> dict[int, tuple[str, int, int]]:
    """For each tensor the layer that reads it, as which input, and the layer's own place.

    Unpacking is looked through.
    """
    found: dict[int, tuple[str, int, int]] = {}
    for order, op in reversed(list(enumerate(graph.operators))):
        kind = op_type(model, op)
        for place, tensor in enumerate(op.inputs):
            if kind in _OPS or kind in ("ADD", "MUL", "SUB"):
                found[int(tensor)] = (kind, place, order)
            elif kind == "DEQUANTIZE" and int(op.outputs[0]) in found:
                found[int(tensor)] = found[int(op.outputs[0])]
    return found


def _constant(model: Any, tensor: Any, layer: tuple[str, int, int] | None) -> Part | None:
    data, dtype = model.buffers[tensor.buffer].data, tensor_dtype(tensor)
    if data is None or not len(data) or layer is None or dtype not in _STORED:
        return None
    kind, place, order = layer
    shape = tuple(int(n) for n in tensor.shape) if tensor.shape is not None else ()
    array = np.frombuffer(bytes(data), _STORED[dtype]).reshape(shape).copy()
    name, op = tensor.name.decode(), _OPS.get(kind, "other")
    if array.ndim >= 2 and min(array.shape[0], array.size // array.shape[0]) > 1:
        return Part(name, "weight", array, 0, "", op, order) if dtype != "int32" else None
    bias = (place == 2 and op in ("conv", "linear")) or (kind == "ADD" and array.size > 1)
    return Part(name, "bias", array, 0, "", op, order) if bias else None


def _scales(model: Any, tensor: Any, part: Part | None, order: int) -> list[tuple[Part, Any, str]]:
    held = tensor.quantization
    if held is None or held.scale is None or not len(held.scale):
        return []
    if part is not None and part.role == "bias":
        return []  # a bias has the scale that its weights and input give it
    weights = part is not None or model.buffers[tensor.buffer].data is not None
    roles: tuple[Role, Role] = ("scale", "zero") if weights else ("range", "range-zero")
    name = tensor.name.decode()
    steps = np.array(held.scale, np.float32)
    scale = Part(f"{name}/scale", roles[0], steps, 0, name, order=order)
    made = [(scale, held, "scale")]
    if held.zeroPoint is not None and len(held.zeroPoint):
        points = np.array(held.zeroPoint, np.int64)
        zero = Part(f"{name}/zero", roles[1], points, 0, name, order=order)
        made.append((zero, held, "zeroPoint"))
    return made
