"""The ops of a file that are quantized, and their modes.

w8a8: a convolution's integer kernel reads and writes 8-bit activations with calibrated ranges; so
do pooling, additions and the like, and between convolutions staying in 8 bits saves conversions. A
matrix product quantizes its input rows dynamically, multiplies in 8 bits and gives float. The other
ops of a transformer (normalization, softmax, attention itself, the residual stream) lose most and
gain least by 8 bits: they stay float.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from edgeserve.backends.checks import is_kept, nothing_to_quantize, unknown_keep_float
from edgeserve.backends.tflite.schema import op_type, tensor_dtype
from edgeserve.backends.tflite.tensor_names import source_of

#: "half": weights in float16; "weights": in 8 bits, computed with in float; "dynamic": in 8 bits,
#: activations as they come; "static": in 8 bits, activations in measured ranges.
QuantizationMode = Literal["half", "weights", "dynamic", "static"]

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")

#: Ops with weights, which are their second input.
_WEIGHTED = (*_CONVOLUTIONS, "BATCH_MATMUL", "EMBEDDING_LOOKUP", "FULLY_CONNECTED")

#: Ops with 8-bit kernels, or that only move values, allowed between convolutions.
_PASS_THROUGH = tuple(
    "ADD AVERAGE_POOL_2D CONCATENATION HARD_SWISH LOGISTIC MAX_POOL_2D MAXIMUM MEAN "
    "MIRROR_PAD MUL PAD PADV2 RELU RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SLICE "
    "SPACE_TO_DEPTH SPLIT STRIDED_SLICE SUB TANH TRANSPOSE".split()
)


class OpQuantization(NamedTuple):
    """An op to quantize: a pattern of its outputs' names, its type and its mode."""

    scope: str
    type: str
    how: QuantizationMode


class _Node(NamedTuple):
    """An op: its type, the non-constant float tensors that it reads, its outputs."""

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
        keep_float: Source ops and modules that stay float.

    Raises:
        QuantizeError: EDGE-QUANTIZE-009 an unknown op to keep, -011 there is nothing to quantize.
    """
    kept: set[str] = set()
    plan = []
    for graph in model.subgraphs:
        nodes = list(_nodes(model, graph, keep_float, kept))
        how = _static_modes(nodes) if precision == "w8a8" else {}
        for index, node in enumerate(nodes):
            mode = how.get(index) or (_weight_mode(node.type, precision) if node.weighted else None)
            if mode:
                plan.append(OpQuantization(node.scope, node.type, mode))
    if missing := sorted(set(keep_float) - kept):
        raise unknown_keep_float(missing[0])
    if not plan:
        raise nothing_to_quantize("a layer with constant float32 weights", "ask for fp32")
    return plan


def _nodes(model: Any, graph: Any, keep_float: tuple[str, ...], kept: set[str]) -> Iterator[_Node]:
    """The ops of a graph except those to keep; matched entries of ``keep_float`` go to ``kept``."""
    names = [tensor.name.decode() for tensor in graph.tensors]
    for op in graph.operators:
        type, makes = op_type(model, op), tuple(op.outputs)
        source = source_of(type, names[makes[0]]) if makes else None
        matched = {each for each in keep_float if source and is_kept(each, source[1], source[0])}
        kept |= matched
        if makes and not matched:
            scope = re.escape("".join(f"{names[tensor]};" for tensor in makes))
            reads, weighted = _reads(model, graph, op), _weighted(model, graph, op, type)
            yield _Node(type, reads, makes, weighted, f"^{scope}$")


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
    if type not in _WEIGHTED or len(op.inputs) < 2:
        return False
    tensor = graph.tensors[op.inputs[1]]
    return tensor_dtype(tensor) == "float32" and _constant(model, tensor)


def _weight_mode(type: str, precision: str) -> QuantizationMode:
    """The mode of an op with weights; a lookup only converts the rows that it reads."""
    if precision == "fp16":
        return "half"
    return "dynamic" if precision == "w8a8" or type == "EMBEDDING_LOOKUP" else "weights"


def _static_modes(nodes: list[_Node]) -> dict[int, QuantizationMode]:
    """Convolutions, and ops that pass 8-bit activations from one of them to an op with weights."""
    flowing: set[int] = set()
    static = set()
    for index, node in enumerate(nodes):
        layer = node.weighted and node.type in _CONVOLUTIONS
        if layer or (node.type in _PASS_THROUGH and node.reads and flowing.issuperset(node.reads)):
            static.add(index)
            flowing.update(node.makes)
    wanted: set[int] = set()  # tensors that are useful in 8 bits
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.type in _PASS_THROUGH and wanted.isdisjoint(node.makes):
            static.discard(index)
        if index in static or node.weighted:
            wanted.update(node.reads)
    return dict.fromkeys(sorted(static), "static")
