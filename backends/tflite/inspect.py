"""What a TFLite file holds, read through the classes of its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.tflite.edges import definition_of, edges
from edgeserve.backends.tflite.names import SINGLE, source_of
from edgeserve.backends.tflite.schema import (
    inner_graphs,
    op_type,
    read_model,
    tensor_dtype,
    tensors_of,
)
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import IO

__all__ = ["inspect_tflite", "shown_names"]


def inspect_tflite(artifact: Artifact, root: Path) -> Graph:
    """The graph of an artifact's file; of one with several signatures, that of the largest.

    The others are the same graph for other sizes, over the same weights.
    """
    model = read_model(root / artifact.entry)
    io = edges(model)[artifact.io.signature or SINGLE]
    index = definition_of(model, io.signature).subgraphIndex
    return Graph(
        inputs=io.inputs,
        outputs=io.outputs,
        ops=tuple(_ops(model, index, shown_names(model, io))),
        weights=_weights(model),
        opset={"": int(model.version)},
    )


def shown_names(model: Any, io: IO) -> list[str]:
    """Names of the tensors of a signature's graph; inputs and outputs have those of the `IO`."""
    definition = definition_of(model, io.signature)
    names = [t.name.decode() for t in model.subgraphs[definition.subgraphIndex].tensors]
    for edge in (*definition.outputs, *definition.inputs):
        names[edge.tensorIndex] = edge.name.decode()
    return names


def _ops(model: Any, index: int, names: list[str]) -> Iterator[Op]:
    """The ops of a graph, each followed by those that it holds."""
    graph = model.subgraphs[index]
    for op in graph.operators:
        kind = op_type(model, op)
        first = graph.tensors[op.outputs[0]].name.decode() if len(op.outputs) else ""
        source = source_of(kind, first)
        yield Op(
            name="",
            type=kind,
            inputs=tuple(names[tensor] if tensor >= 0 else "" for tensor in op.inputs),
            outputs=tuple(names[tensor] for tensor in op.outputs),
            source=source[1] if source else None,
            module=(source[0] or None) if source else None,
        )
        for inner in inner_graphs(op):
            inner_names = [tensor.name.decode() for tensor in model.subgraphs[inner].tensors]
            yield from _ops(model, inner, inner_names)


def _weights(model: Any) -> tuple[WeightInfo, ...]:
    """Each stored buffer once, by the name of the first tensor that reads it."""
    found: dict[int, WeightInfo] = {}
    for _, tensor in tensors_of(model):
        data = model.buffers[tensor.buffer].data
        if data is not None and len(data) and tensor.buffer not in found:
            shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
            found[tensor.buffer] = WeightInfo(
                name=tensor.name.decode(), dtype=tensor_dtype(tensor), shape=shape, bytes=len(data)
            )
    return tuple(sorted(found.values(), key=lambda weight: weight.name))
