"""Which ops of a file compute in fewer bits, and how.

w8a8: a convolution's integer kernel takes and gives 8-bit activations whose ranges were measured;
so do pooling, additions and the like, and between convolutions staying in 8 bits saves conversions.
A matrix product measures the rows that it is given itself, multiplies in 8 bits and gives float.
What a transformer computes in between (normalisation, softmax, attention itself, the residual
stream) loses most and gains least by 8 bits: it stays float.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from edgeserve.backends.tflite.schema import op_type, tensor_dtype
from edgeserve.backends.tflite.tensor_names import source_of
from edgeserve.errors import QuantizeError

__all__ = ["OpQuantization", "plan_quantization"]

#: "half": weights in float16; "weights": in 8 bits, computed with in float; "dynamic": in 8 bits,
#: activations as they come; "static": in 8 bits, activations in measured ranges.
QuantizationMode = Literal["half", "weights", "dynamic", "static"]

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")

#: Ops with weights, and which of their inputs those are.
_WEIGHTS = {
    "BATCH_MATMUL": 1,
    "CONV_2D": 1,
    "DEPTHWISE_CONV_2D": 1,
    "EMBEDDING_LOOKUP": 1,
    "FULLY_CONNECTED": 1,
    "TRANSPOSE_CONV": 1,
}

#: What has 8-bit kernels, or only moves values, and may stand between convolutions.
_PASS_THROUGH = (
    "ADD",
    "AVERAGE_POOL_2D",
    "CONCATENATION",
    "HARD_SWISH",
    "LOGISTIC",
    "MAX_POOL_2D",
    "MAXIMUM",
    "MEAN",
    "MIRROR_PAD",
    "MUL",
    "PAD",
    "PADV2",
    "RELU",
    "RESHAPE",
    "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR",
    "SLICE",
    "SPACE_TO_DEPTH",
    "SPLIT",
    "STRIDED_SLICE",
    "SUB",
    "TANH",
    "TRANSPOSE",
)


class OpQuantization(NamedTuple):
    """What is to become of an op: a pattern of its outputs' names, its type, and how."""

    scope: str
    type: str
    how: QuantizationMode


class _Node(NamedTuple):
    """An op: its type, the float tensors that it reads and that are no constants, what it makes."""

    type: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    weighted: bool
    scope: str


def plan_quantization(
    model: Any, precision: str, keep_float: tuple[str, ...]
) -> list[OpQuantization]:
    """The ops of all signatures to quantize.

    Args:
        model: The float file.
        precision: fp16, w8 or w8a8.
        keep_float: Source ops, and modules with all that is in them, to leave alone.

    Raises:
        QuantizeError: EDGE-QUANTIZE-009 an unknown op to keep, -011 there is nothing to quantize.
    """
    kept: set[str] = set()
    wishes = []
    for graph in model.subgraphs:
        nodes = list(_nodes(model, graph, keep_float, kept))
        how = _static_modes(nodes) if precision == "w8a8" else {}
        for index, node in enumerate(nodes):
            wish = how.get(index) or (_weight_mode(node.type, precision) if node.weighted else None)
            if wish:
                wishes.append(OpQuantization(node.scope, node.type, wish))
    if missing := sorted(set(keep_float) - kept):
        raise QuantizeError(
            "EDGE-QUANTIZE-009",
            f"keep_float {missing[0]!r}",
            wanted="a module's path or a node of the exported program that the file knows",
            got="nothing that came from it",
            hint="`edgeserve inspect` shows source and module",
        )
    if not wishes:
        raise QuantizeError(
            "EDGE-QUANTIZE-011",
            "model",
            wanted="a layer with constant float32 weights",
            got="none that is to be quantized",
            hint="ask for fp32, or keep less in float",
        )
    return wishes


def _nodes(model: Any, graph: Any, keep_float: tuple[str, ...], kept: set[str]) -> Iterator[_Node]:
    """The ops of a graph but those to keep; what was met of ``keep_float`` goes into ``kept``."""
    names = [tensor.name.decode() for tensor in graph.tensors]
    for op in graph.operators:
        type, makes = op_type(model, op), tuple(op.outputs)
        source = source_of(type, names[makes[0]]) if makes else None
        met = {each for each in keep_float if source and _within(source, each)}
        kept |= met
        if makes and not met:
            scope = "".join(f"{names[tensor]};" for tensor in makes)
            yield _Node(
                type,
                _reads(model, graph, op),
                makes,
                _weighted(model, graph, op, type),
                f"^{re.escape(scope)}$",
            )


def _within(source: tuple[str, str], wanted: str) -> bool:
    module, node = source
    return node == wanted or f"{module}.".startswith(f"{wanted}.")


def _constant(model: Any, tensor: Any) -> bool:
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _reads(model: Any, graph: Any, op: Any) -> tuple[int, ...]:
    return tuple(
        index
        for index in op.inputs
        if index >= 0
        and tensor_dtype(graph.tensors[index]) == "float32"
        and not _constant(model, graph.tensors[index])
    )


def _weighted(model: Any, graph: Any, op: Any, type: str) -> bool:
    place = _WEIGHTS.get(type)
    if place is None or place >= len(op.inputs):
        return False
    tensor = graph.tensors[op.inputs[place]]
    return tensor_dtype(tensor) == "float32" and _constant(model, tensor)


def _weight_mode(type: str, precision: str) -> QuantizationMode:
    """How an op with weights is quantized on its own; a lookup only widens the rows it takes."""
    if precision == "fp16":
        return "half"
    return "dynamic" if precision == "w8a8" or type == "EMBEDDING_LOOKUP" else "weights"


def _static_modes(nodes: list[_Node]) -> dict[int, QuantizationMode]:
    """Convolutions, and what passes 8-bit activations on from one of them to an op with weights."""
    flowing: set[int] = set()
    static = set()
    for index, node in enumerate(nodes):
        layer = node.weighted and node.type in _CONVOLUTIONS
        if layer or (node.type in _PASS_THROUGH and node.reads and flowing.issuperset(node.reads)):
            static.add(index)
            flowing.update(node.makes)
    wanted: set[int] = set()  # tensors that are of use in 8 bits
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.type in _PASS_THROUGH and wanted.isdisjoint(node.makes):
            static.discard(index)
        if index in static or node.weighted:
            wanted.update(node.reads)
    return dict.fromkeys(sorted(static), "static")
