"""The content of a TFLite file: signatures, ops and weights, through the classes of its schema.

`fit_to_spec` brings a real input of the source to the sizes of a signature, to run or calibrate
the file with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgeserve.backends.checks import unsupported_dtype
from edgeserve.backends.graph import Graph, Op, WeightInfo
from edgeserve.backends.sizes import Sizes
from edgeserve.backends.tflite.schema import (
    inner_graphs,
    op_type,
    read_model,
    tensor_dtype,
    tensors_of,
)
from edgeserve.backends.tflite.tensor_names import SINGLE, source_of
from edgeserve.errors import ConvertError
from edgeserve.types.artifact import Artifact
from edgeserve.types.tensors import DTYPES, IO, DType, Signature, TensorSpec


def fit_to_spec(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """An input in the dtype and the sizes of the file: rows repeated, lengths cut or padded by 0.

    Zero marks padding in an attention mask. Values under a mask of zeros are computed and ignored.
    """
    array = array.astype(spec.dtype)
    for axis, dim in enumerate(spec.shape):
        size, have = int(dim), array.shape[axis]
        if axis == 0:
            array = array.take(np.arange(size) % have, axis)
        elif have >= size:
            array = array.take(range(size), axis)
        else:
            widths = [(0, size - have if i == axis else 0) for i in range(array.ndim)]
            array = np.pad(array, widths)
    return array


#: The file's dtypes by the source's: the format has 64 bits, but few of its kernels do.
_NARROWED = {"int64": "int32", "float64": "float32"}


def read_signatures(model: Any) -> dict[str, IO]:
    """The `IO` of each signature, by its key; `IO.signature` is None where it is the only one."""
    several = len(model.signatureDefs) > 1
    found = {}
    for definition in model.signatureDefs:
        key, graph = definition.signatureKey.decode(), model.subgraphs[definition.subgraphIndex]
        found[key] = IO(
            inputs=tuple(_spec(each, graph) for each in definition.inputs),
            outputs=tuple(_spec(each, graph) for each in definition.outputs),
            signature=key if several else None,
        )
    return found


def definition_of(model: Any, signature: str | None) -> Any:
    """The definition of a signature, by `IO.signature`."""
    return next(
        each
        for each in model.signatureDefs
        if signature is None or each.signatureKey.decode() == signature
    )


def _spec(each: Any, graph: Any) -> TensorSpec:
    tensor = graph.tensors[each.tensorIndex]
    shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
    return TensorSpec(name=each.name.decode(), dtype=_dtype(each, tensor), shape=shape)


def _dtype(each: Any, tensor: Any) -> DType:
    word = tensor_dtype(tensor)
    if word not in DTYPES:
        hint = "keep the file's inputs and outputs in float32 or an integer dtype"
        raise unsupported_dtype(each.name.decode(), DTYPES, word, hint)
    return cast("DType", word)


def check_converted_io(
    found: dict[str, IO], signature: Signature, sizes: Sequence[Sizes]
) -> tuple[IO, ...]:
    """Compare a file's signatures with the request.

    Returns:
        The signatures, smallest first.

    Raises:
        ConvertError: EDGE-CONVERT-041.
    """
    made = tuple(found[each.name or SINGLE] for each in sizes if (each.name or SINGLE) in found)
    right = len(found) == len(made) == len(sizes) and all(
        [(s.name, _narrowed_dtype(s.dtype), each.of(s.shape)) for s in signature.inputs]
        == [(s.name, s.dtype, s.shape) for s in io.inputs]
        and [(s.name, _narrowed_dtype(s.dtype), len(s.shape)) for s in signature.outputs]
        == [(s.name, s.dtype, len(s.shape)) for s in io.outputs]
        for io, each in zip(made, sizes, strict=True)
    )
    if not right:
        got = f"{list(found.values())}"
        wanted = f"{[*signature.inputs, *signature.outputs]} at {[dict(s.dims) for s in sizes]}"
        hint = "this is a bug of edgeserve: report it with `edgeserve doctor --json`"
        raise ConvertError("EDGE-CONVERT-041", "model.tflite", got=got, wanted=wanted, hint=hint)
    return made


def _narrowed_dtype(dtype: str) -> str:
    return _NARROWED.get(dtype, dtype)


def inspect_tflite(artifact: Artifact, root: Path) -> Graph:
    """The graph of an artifact's file; of one with several signatures, that of the largest.

    The others are the same graph for other sizes, over the same weights.
    """
    model = read_model(root / artifact.entry)
    io = read_signatures(model)[artifact.io.signature or SINGLE]
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
